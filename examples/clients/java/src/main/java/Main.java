import java.io.IOException;
import java.util.List;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import redis.clients.jedis.exceptions.JedisException;

/** Draws ids from the command line; see ../README.md. */
public final class Main {
    private static final int TRANSIENT = 75; // EX_TEMPFAIL

    private static List<String> words(String variable, String otherwise) {
        return List.of(System.getenv().getOrDefault(variable, otherwise).split(","));
    }

    private static Stream<Long> each(Ids.Range range) {
        return LongStream.rangeClosed(range.first(), range.last()).boxed();
    }

    /** Draws in every way for some seconds, and prints each range with the server that it came from. */
    private static void record(Ids ids, String name, int seconds) {
        var block = new Ids.Block(ids, name, 20);
        for (long end = System.nanoTime() + seconds * 1_000_000_000L; System.nanoTime() < end; ) {
            note(ids, ids.next(name));
            ids.take(name, 30).forEach(range -> note(ids, range));
            note(ids, ids.block(name, 10));
            ids.many(name, 10).forEach(id -> note(ids, id));
            for (int i = 0; i < 25; i++) {
                long id = block.next();
                System.out.println("block " + id + " " + id);
            }
        }
        System.err.println(ids.retries + " retries");
    }

    private static void note(Ids ids, long id) {
        note(ids, new Ids.Range(id, id));
    }

    private static void note(Ids ids, Ids.Range range) {
        System.out.println(ids.server() + " " + range.first() + " " + range.last());
    }

    private static Stream<Long> drawn(Ids ids, String token, String what, String name, int n)
            throws IOException, InterruptedException {
        return switch (what) {
            case "next" -> Stream.of(ids.next(name));
            case "many" -> ids.many(name, n).stream();
            case "block" -> each(ids.block(name, n));
            case "take" -> ids.take(name, n).stream().flatMap(Main::each);
            case "http" -> new IdsOverHttp(words("IDMILL_HTTP", "http://localhost:7381"), token).draw(name, n).stream();
            default -> throw new IllegalArgumentException("next|many|block|take|http|record NAME [N]");
        };
    }

    public static void main(String[] args) throws InterruptedException {
        var token = System.getenv("IDMILL_TOKEN");
        var what = args.length > 0 ? args[0] : "next";
        var name = args.length > 1 ? args[1] : "orders";
        int n = args.length > 2 ? Integer.parseInt(args[2]) : 1;
        try (var ids = new Ids(words("IDMILL_SERVERS", "redis://localhost:7380"), token)) {
            if (what.equals("record")) {
                record(ids, name, n);
            } else {
                drawn(ids, token, what, name, n).forEach(System.out::println);
            }
        } catch (JedisException error) {
            fail(error, Ids.isTransient(error));
        } catch (IOException error) {
            fail(error, !(error instanceof IdsOverHttp.Problem problem) || !problem.outcome.equals("permanent"));
        }
    }

    private static void fail(Exception error, boolean again) {
        System.err.println(error);
        System.exit(again ? TRANSIENT : 1);
    }
}
