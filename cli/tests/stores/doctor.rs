//! `idmill doctor` on stores with engines: what is in use there, and what a window has.

use idmill_testing::engines::Engine;
use serde_json::Value;

use crate::common::Place;
use crate::{ONE, PASSWORD, User};

/// The user's own rows and the table of sequences in one database, and then a second table in a schema that
/// comes first.
#[tokio::test]
async fn a_doctor_of_postgres() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("postgres").await else { return };
    let url = format!("postgres://postgres:{PASSWORD}@{}/postgres?timeout=30s", engine.address());
    let admin = idmill_postgres::PostgresOptions::parse(&url).unwrap().client().await.unwrap();
    let user = User { place: Place::new(), url: url.clone() };
    user.done(&["next", "orders", "-n", "5"]);
    admin.batch_execute("CREATE TABLE orders (id int); INSERT INTO orders VALUES (5), (90)").await.unwrap();
    let check = format!("orders={url}&column=public.orders.id");
    let doctor = ["doctor", "--check", &check];
    let ran = user.run(&doctor);
    assert!(ran.code == 7 && ran.out.contains("90 is in use, and the next to be reserved is 6"), "{ran:?}");
    // The sequence of a store goes on to 2^64 - 1, and the column to 2^31 - 1.
    assert!(ran.out.contains("(integer) holds ids up to 2147483647"), "{ran:?}");
    assert_eq!(user.run(&[&doctor[..], &["--fix"]].concat()).code, 6);
    assert_eq!(user.done(&["next", "orders"]), "91\n");
    let second = "CREATE ROLE shop LOGIN; CREATE SCHEMA shop AUTHORIZATION shop; GRANT ALL ON idmill_sequences TO shop;
        CREATE TABLE shop.idmill_sequences (LIKE public.idmill_sequences INCLUDING ALL)";
    admin.batch_execute(second).await.unwrap();
    let ran = user.run_with(&url.replace("//postgres:", "//shop:"), &["doctor", "--json"]);
    let finding: Value = serde_json::from_str(ran.out.lines().next().unwrap()).unwrap();
    assert_eq!((ran.code, &finding["kind"]), (7, &"refused".into()), "{ran:?}");
    let said = finding["found"].as_str().unwrap();
    assert!(said.contains("shop") && said.contains("public"), "{said}");
    // The administrator's path does not lead to the other one.
    let ran = user.run(&["doctor"]);
    assert!(
        ran.code == 6 && ran.out.contains("the store: ambiguous") && ran.out.contains(": shop\n"),
        "{ran:?}"
    );
    assert_eq!(
        user.run_with(&format!("{url}&schema=public"), &["doctor"]).code,
        0,
        "it is said which is meant"
    );
    admin.batch_execute("DROP TABLE shop.idmill_sequences").await.unwrap();
    assert_eq!(user.run(&["doctor"]).code, 0);
}

/// The file of the store is put back, and the window is not.
#[tokio::test]
async fn a_doctor_of_windows() {
    let _one = ONE.lock().await;
    for scheme in ["redis", "memcached"] {
        let Some(engine) = Engine::start(scheme).await else { return };
        let url = format!("sqlite:ids.db?window={scheme}://{}?block=100", engine.address());
        let user = User { place: Place::new(), url: url.clone() };
        let file = |name: &str| user.place.path().join(name);
        user.done(&["next", "orders", "-n", "50"]);
        user.done(&["next", "users", "-n", "5"]);
        assert_eq!(user.run(&["doctor"]).code, 0, "{scheme}");
        std::fs::copy(file("ids.db"), file("copy.db")).unwrap();
        // One by one, so that something is left in the window.
        let drawn = user.done(&["next", "orders", "-n", "40", "--step", "1"]);
        let last: u64 = drawn.lines().last().unwrap().parse().unwrap();
        assert_eq!(user.run(&["doctor"]).code, 0, "{scheme}");
        std::fs::copy(file("copy.db"), file("ids.db")).unwrap();
        let ran = user.run(&["doctor"]);
        assert!(
            ran.code == 7 && ran.out.contains("orders: went_back\n  asked  what its window has"),
            "{ran:?}"
        );
        assert!(!ran.out.contains("users:"), "{ran:?}");
        assert_eq!(user.run(&["doctor", "--fix"]).code, 0, "{scheme}");
        let next: u64 = user.done(&["next", "orders"]).trim().parse().unwrap();
        assert!(next > last, "{scheme}: {next} after {last}");
        engine.kill();
        let ran = user.run(&["doctor"]);
        assert!(
            ran.code == 8 && ran.out.contains("the store: not_seen\n  asked  what the window has"),
            "{ran:?}"
        );
    }
}
