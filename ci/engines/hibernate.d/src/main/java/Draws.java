import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.SequenceGenerator;
import org.hibernate.cfg.Configuration;

/** Prints ids that Hibernate draws from the sequence `shared`: `Draws JDBC-URL pooled|pooled-lo COUNT`. */
public class Draws {
    @Entity
    static class Row {
        @Id
        @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "shared")
        @SequenceGenerator(name = "shared", sequenceName = "shared", allocationSize = 50)
        long id;
    }

    public static void main(String[] arguments) {
        var configuration = new Configuration()
                .addAnnotatedClass(Row.class)
                .setProperty("hibernate.connection.url", arguments[0])
                .setProperty("hibernate.connection.username", "postgres")
                .setProperty("hibernate.id.optimizer.pooled.preferred", arguments[1]);
        var count = Integer.parseInt(arguments[2]);
        var ids = new StringBuilder();
        try (var factory = configuration.buildSessionFactory(); var session = factory.openSession()) {
            for (var drawn = 0; drawn < count; drawn++) {
                var row = new Row();
                // The id is drawn here. No row is inserted without a flush.
                session.persist(row);
                ids.append(row.id).append('\n');
                session.clear();
            }
        }
        System.out.print(ids);
    }
}
