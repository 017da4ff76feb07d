//! `create`, `list`, `show`, `set` and `remove`: their output and their refusals.

use serde_json::json;

use crate::common::{Place, Ran, keys};

const FIELDS: [&str; 8] =
    ["name", "next", "start", "max", "remaining", "used_percent", "incarnation", "epoch"];

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

#[test]
fn sequence_has_the_same_fields_in_every_output() {
    let place = Place::new();
    let created = place.json(&["create", "s", "--start", "10", "--max", "19", "--json"]);
    assert_eq!(keys(&created), sorted(FIELDS.to_vec()));
    place.run(&["next", "s", "-n", "4"]);
    let shown = place.show();
    let incarnation = created["incarnation"].as_str().unwrap();
    assert_eq!(incarnation.len(), 16);
    let expected = json!({
        "name": "s", "next": 14, "start": 10, "max": 19, "remaining": 6, "used_percent": 40.0,
        "incarnation": incarnation, "epoch": 0,
    });
    assert_eq!(shown, expected);
    assert_eq!(place.lines(&["list", "--json"]), [shown]);
    let changed = place.json(&["set", "s", "--next", "15", "--json"]);
    assert_eq!(keys(&changed), ["after", "before"]);
    assert_eq!((&changed["before"], &changed["after"]["next"]), (&expected, &json!(15)));
    let removed = place.json(&["remove", "s", "--yes", "--json"]);
    assert_eq!(removed, json!({ "removed": changed["after"] }));
    assert_eq!(place.run(&["list", "--json"]).out, "");
}

#[test]
fn json_keeps_the_documented_order_and_every_digit() {
    let place = Place::with_sequence(0, u64::MAX);
    let text = place.run(&["show", "s", "--json"]).out;
    let positions: Vec<_> = FIELDS.iter().map(|field| text.find(&format!("\"{field}\"")).unwrap()).collect();
    assert!(positions.is_sorted(), "{text}");
    assert!(text.contains(r#""max": 18446744073709551615,"#), "{text}");
    assert!(text.contains(r#""remaining": 18446744073709551616,"#), "{text}");
}

#[test]
fn tables_are_aligned_and_end_without_blanks() {
    let place = Place::with_sequence(1, 1000);
    place.run(&["create", "注文", "--start", "7", "--max", "7"]);
    place.run(&["next", "注文"]);
    let table = place.run(&["list"]).out;
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with("NAME  NEXT   MAX"), "{table}");
    assert!(lines[1].starts_with("s        1  1000"), "{table}");
    // Each of the two characters of `注文` is two columns wide.
    assert!(lines[2].starts_with("注文     -     7"), "{table}");
    assert!(lines.iter().all(|line| line.trim_end() == *line) && !table.contains('\x1b'));
}

#[test]
fn set_lowers_next_only_with_backwards() {
    let place = Place::with_sequence(1, 1000);
    place.run(&["next", "s", "-n", "10"]);
    let before = place.show();
    for back in [["--next", "5"], ["--max", "8"]] {
        let ran = place.run(&[&["set", "s"], &back[..]].concat());
        assert_eq!((ran.code, ran.out.as_str()), (5, ""), "{back:?}");
        assert!(
            ran.err.contains("ids could be repeated") || ran.err.contains("already reserved"),
            "{}",
            ran.err
        );
        assert!(ran.err.contains("hint: add `--backwards`"), "{}", ran.err);
    }
    assert_eq!(place.show(), before);
    let ran = place.run(&["set", "s", "--next", "50"]);
    assert!(ran.out.contains("next         11") && ran.out.contains("-> 50\n"), "{}", ran.out);
    assert_eq!(place.run(&["set", "s", "--next", "5", "--backwards", "--yes"]).code, 0);
    let after = place.show();
    assert_eq!((&after["next"], &after["epoch"]), (&json!(5), &json!(1)));
    assert_eq!(after["incarnation"], before["incarnation"]);
    assert_eq!(place.run(&["next", "s"]).ids(), [5]);
}

#[test]
fn set_backwards_without_yes_names_the_repeated_ids() {
    let place = Place::with_sequence(1, 1000);
    place.run(&["next", "s", "-n", "10"]);
    let before = place.show();
    let ran = place.run(&["set", "s", "--next", "5", "--backwards"]);
    assert_eq!((ran.code, ran.out.as_str()), (5, ""), "{}", ran.err);
    assert!(
        ran.err.contains("ids 5 to 10 could repeat") && ran.err.contains("--backwards --yes"),
        "{}",
        ran.err
    );
    assert_eq!(place.show(), before);
    // No id would repeat, so no confirmation is needed.
    assert_eq!(place.run(&["set", "s", "--next", "11", "--backwards"]).code, 0);
}

#[test]
fn create_if_not_exists_rejects_other_bounds() {
    let place = Place::new();
    let created = place.run(&["create", "s", "--max", "50", "--if-not-exists"]);
    assert_eq!(created.code, 0, "{}", created.err);
    for same in [&["create", "s", "--if-not-exists"][..], &["create", "s", "--max", "50", "--if-not-exists"]]
    {
        assert_eq!(place.run(same).out, created.out);
    }
    for (flag, other, has) in [("--max", "51", "50"), ("--start", "2", "1")] {
        let ran = place.run(&["create", "s", flag, other, "--if-not-exists"]);
        assert_eq!(ran.code, 5);
        assert!(ran.err.contains(&format!("`{flag} {has}`, not {other}")), "{}", ran.err);
    }
    assert_eq!(place.run(&["create", "s"]).code, 5);
}

#[test]
fn new_sequences_end_with_the_largest_bigint() {
    let place = Place::new();
    place.run(&["next", "s"]);
    assert_eq!(place.show()["max"], json!(i64::MAX));
    place.run(&["create", "t"]);
    assert!(place.run(&["show", "t"]).out.contains("max          9223372036854775807\n"));
    place.run(&["create", "u", "--max", "18446744073709551615"]);
    assert_eq!(place.run(&["next", "u"]).ids(), [1], "an existing sequence keeps its max");
}

#[test]
fn list_prints_four_columns_unless_it_is_wide() {
    let place = Place::with_sequence(1, 1000);
    let headings = |args: &[&str]| place.run(args).out.lines().next().unwrap().split_whitespace().count();
    assert_eq!((headings(&["list"]), headings(&["ls"]), headings(&["list", "--wide"])), (4, 4, 8));
}

#[test]
fn set_requires_next_or_max() {
    let place = Place::with_sequence(1, 1000);
    let ran = place.run(&["set", "s"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("<--next <N>|--max <N>>"), "{}", ran.err);
    for args in [&["--next", "5"][..], &["--max", "900"], &["--next", "6", "--max", "800"]] {
        assert_eq!(place.run(&[&["set", "s"], args].concat()).code, 0, "{args:?}");
    }
}

#[test]
fn raised_max_continues_an_exhausted_sequence() {
    let place = Place::with_sequence(1, 3);
    assert_eq!(place.run(&["next", "s", "-n", "4"]).code, 3);
    assert_eq!(place.run(&["set", "s", "--max", "5"]).code, 0);
    assert_eq!(place.run(&["next", "s", "-n", "2"]).ids(), [4, 5]);
}

#[test]
fn removal_of_an_unused_sequence_repeats_no_ids() {
    let place = Place::new();
    place.run(&["create", "s", "--start", "10"]);
    let ran = place.run(&["remove", "s"]);
    assert!(
        ran.err.contains("none of its ids are reserved") && !ran.err.contains("may repeat"),
        "{}",
        ran.err
    );
}

#[test]
fn remove_requires_yes_and_changes_the_incarnation() {
    let place = Place::with_sequence(1, 1000);
    place.run(&["next", "s", "-n", "41"]);
    let before = place.show();
    let ran = place.run(&["remove", "s"]);
    assert_eq!((ran.code, ran.out.as_str()), (5, ""));
    assert!(ran.err.contains("ids before 42") && ran.err.contains("`idmill remove s --yes`"), "{}", ran.err);
    assert_eq!(place.show(), before);
    assert_eq!(place.run(&["remove", "s", "--yes"]).code, 0);
    assert_eq!(place.run(&["remove", "s", "--yes"]).code, 4);
    place.run(&["create", "s"]);
    assert_ne!(place.show()["incarnation"], before["incarnation"]);
}

#[test]
fn create_rejects_existing_and_show_rejects_missing() {
    let place = Place::with_sequence(5, 1000);
    let ran = place.run(&["create", "s"]);
    assert_eq!((ran.code, ran.out.as_str()), (5, ""));
    assert!(ran.err.contains("already exists") && ran.err.contains("`idmill show s`"), "{}", ran.err);
    assert_eq!(place.show()["start"], 5);
    for args in [&["show", "other"][..], &["set", "other", "--next", "5"], &["remove", "other", "--yes"]] {
        let ran = place.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{args:?}");
        assert!(ran.err.contains("`other`") && ran.err.contains("`idmill list` shows all"), "{}", ran.err);
    }
}

#[test]
fn reading_commands_never_create_a_store() {
    let place = Place::new();
    let commands = [&["list"][..], &["show", "s"], &["set", "s", "--next", "5"], &["remove", "s", "--yes"]];
    for args in commands {
        let ran = place.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{args:?}");
        assert!(ran.err.contains("idmill.db: there is no such file"), "{}", ran.err);
        assert!(place.files().is_empty());
    }
}

#[test]
fn missing_name_error_suggests_the_nearest_name() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    for args in [&["show", "odrers"][..], &["set", "Orders", "--next", "9"], &["remove", "order"]] {
        let ran = place.run(args);
        assert_eq!(ran.code, 4, "{args:?}: {ran:?}");
        assert!(
            ran.err.contains("hint: did you mean orders? `idmill list` shows all"),
            "{args:?}: {}",
            ran.err
        );
    }
    assert!(place.run(&["show", "tickets"]).err.contains("`idmill create tickets --start N`"));
}

/// The columns of a row except its name.
const ROW: &str = "next, start, max, incarnation, epoch, format";

fn database(place: &Place) -> idmill_sqlite::rusqlite::Connection {
    idmill_sqlite::rusqlite::Connection::open(place.path().join("idmill.db")).unwrap()
}

#[test]
fn list_filters_by_prefix_and_limit() {
    let place = Place::with_sequence(1, 9);
    for name in ["orders-b", "orders-a", "other"] {
        place.run(&["create", name]);
    }
    let names = |args: &[&str]| {
        let listed = place.lines(args);
        listed.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["list", "--json", "--prefix", "orders-"]), ["orders-a", "orders-b"]);
    assert_eq!(names(&["list", "--json", "--limit", "2"]), ["orders-a", "orders-b"]);
    assert_eq!(names(&["list", "--json", "--prefix", "x"]), [""; 0]);
    assert_eq!(place.run(&["list", "--prefix", "orders-"]).out.lines().count(), 3);
    assert_eq!(place.run(&["list", "--limit", "0"]).code, 2);
}

#[test]
fn list_reports_an_unreadable_row_and_prints_the_others() {
    let place = Place::with_sequence(1, 9);
    place.run(&["create", "bad"]);
    database(&place)
        .execute("UPDATE idmill_sequences SET start = 5, next = 3 WHERE name = 'bad'", [])
        .unwrap();
    let ran = place.run(&["list"]);
    assert_eq!((ran.code, ran.out.lines().count()), (1, 2), "{ran:?}");
    assert!(
        ran.err.contains("error: list: the row \"bad\"") && ran.err.contains("1 of the store's"),
        "{}",
        ran.err
    );
    let ran = place.run(&["list", "--json"]);
    let mut listed = ran.lines();
    listed.sort_by_key(|line| line["name"].is_null());
    assert_eq!((ran.code, listed.len(), &listed[0]["name"]), (1, 2, &json!("s")));
    let unreadable = &listed[1]["unreadable"];
    assert_eq!((&unreadable["name"], &unreadable["kind"]), (&json!("bad"), &json!("store_violation")));
}

/// `list` prints 200,000 sequences with a limited address space.
#[cfg(target_os = "linux")]
#[test]
fn list_memory_does_not_grow_with_its_length() {
    let place = Place::with_sequence(1, 9);
    database(&place)
        .execute(
            &format!(
                "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 200000) \
                 INSERT INTO idmill_sequences (name, {ROW}) SELECT printf('many-%d', n), 1, 1, 9, 1, 0, 1 FROM n"
            ),
            [],
        )
        .unwrap();
    for (args, lines) in [("list", 200_002), ("list --json", 200_001)] {
        // The limit, in KiB of address space, is enough for a runtime's threads and a database's cache.
        let limited = format!("ulimit -v 160000; exec {} {args}", env!("CARGO_BIN_EXE_idmill"));
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &limited]).current_dir(place.path()).env("MALLOC_ARENA_MAX", "1");
        let output = command.env_remove("IDMILL_STORE").output().unwrap();
        let ran = Ran::from(output);
        assert_eq!((ran.code, ran.out.lines().count()), (0, lines), "{args}: {}", ran.err);
    }
}

#[test]
fn table_created_from_the_printed_schema_grants_ids() {
    let place = Place::new();
    let store = "sqlite:ids.db?table=numbers&mode=rw";
    let schema = place.run(&["schema", "--store", store]);
    assert!(schema.code == 0 && schema.out.ends_with(";\n") && place.files().is_empty(), "{schema:?}");
    let database = idmill_sqlite::rusqlite::Connection::open(place.path().join("ids.db")).unwrap();
    database.execute_batch(&schema.out).unwrap();
    drop(database);
    let ran = place.run(&["next", "orders", "-n", "2", "--store", store]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "1\n2\n"), "{ran:?}");
    let json: serde_json::Value =
        serde_json::from_str(&place.run(&["schema", "--json", "--store", store]).out).unwrap();
    assert_eq!(json["ddl"].as_str().map(|ddl| format!("{ddl};\n")), Some(schema.out));
}

/// No server listens at these URLs.
#[cfg(feature = "full")]
#[test]
fn schema_of_each_table_store_needs_no_server() {
    let place = Place::new();
    for (store, begins) in [
        ("postgres://127.0.0.1:1/shop?table=ids&schema=app", "CREATE TABLE IF NOT EXISTS \"app\".\"ids\" ("),
        (
            "mysql://127.0.0.1:1/shop?window=memcached://127.0.0.1:1",
            "CREATE TABLE IF NOT EXISTS `idmill_sequences` (",
        ),
        (
            "spanner://projects/p/instances/i/databases/d?table=ids&existing=true",
            "CREATE TABLE IF NOT EXISTS `ids` (",
        ),
    ] {
        let ran = place.run(&["schema", "--store", store]);
        assert!(ran.code == 0 && ran.out.starts_with(begins), "{ran:?}");
    }
    for store in ["etcd://127.0.0.1:1", "postgres://127.0.0.1:1/shop?sequences=native"] {
        let ran = place.run(&["schema", "--store", store]);
        assert!(ran.code == 2 && ran.err.contains("prints no statement for"), "{ran:?}");
    }
}

/// Each store and guard has its own table name, which shows whose statement is printed.
#[cfg(feature = "full")]
#[test]
fn witness_schema_uses_the_guard_or_else_the_store() {
    let place = Place::new();
    let store = "mysql://127.0.0.1:1/shop?table=ids";
    let guard = "postgres://127.0.0.1:1/w?table=seen&schema=app";
    let guarded = format!("{store}&guard=sqlite:w.db%3Ftable=kept");
    let asked: [(&[&str], &str); 4] = [
        (&["--store", store], "`ids_witness` ("),
        (&["--store", store, "--guard", guard], "\"app\".\"seen_witness\" ("),
        (&["--store", &guarded], "main.\"kept_witness\" ("),
        (&["--store", "spanner://projects/p/instances/i/databases/d"], "`idmill_witness` ("),
    ];
    for (flags, table) in asked {
        let ran = place.run(&[&["schema", "--witness"], flags].concat());
        let begins = format!("CREATE TABLE IF NOT EXISTS {table}");
        assert!(ran.code == 0 && ran.out.starts_with(&begins) && ran.out.ends_with(";\n"), "{ran:?}");
    }
    for flags in [["--store", "etcd://127.0.0.1:1"], ["--guard", "file:ids.witness"]] {
        let ran = place.run(&[&["schema", "--witness"][..], &flags].concat());
        let refused = format!("`schema` prints no statement for {}", flags[1]);
        assert!(ran.code == 2 && ran.err.contains(&refused), "{ran:?}");
    }
    assert!(place.files().is_empty());
}

#[test]
fn witness_created_from_the_printed_schema_is_written() {
    let place = Place::new();
    let guard = ["--guard", "sqlite:witness.db?mode=rw"];
    let schema = place.run(&[&["schema", "--witness"][..], &guard].concat());
    let sequences = place.run(&["schema", "--store", "sqlite:witness.db"]);
    let database = idmill_sqlite::rusqlite::Connection::open(place.path().join("witness.db")).unwrap();
    database.execute_batch(&(sequences.out + &schema.out)).unwrap();
    let ran = place.run(&[&["next", "orders", "-n", "2"][..], &guard].concat());
    assert_eq!((ran.code, ran.out.as_str()), (0, "1\n2\n"), "{ran:?}");
    let records = "SELECT count(*) FROM idmill_witness WHERE name = 'orders'";
    let records: i64 = database.query_row(records, [], |row| row.get(0)).unwrap();
    assert_eq!(records, 1);
}

#[test]
fn revoke_raises_only_the_epoch() {
    let place = Place::with_sequence(1, 1000);
    place.run(&["next", "s", "-n", "4"]);
    let mut expected = place.show();
    let revoked = place.json(&["revoke", "s", "--json"]);
    assert_eq!(revoked["before"], expected);
    expected["epoch"] = json!(1);
    assert_eq!((&revoked["after"], &place.show()), (&expected, &expected));
    assert_eq!(place.run(&["next", "s"]).ids(), [5]);
    assert_eq!(place.run(&["revoke", "t"]).code, 4);
}

/// A copied command must not act on the default store.
#[test]
fn printed_commands_have_the_flags_of_their_run() {
    let place = Place::new();
    let (store, guard) = ("sqlite:my ids.db", "file:w");
    let flags = ["--store", store, "--guard", guard];
    assert_eq!(place.run(&[&["next", "orders", "-n", "5"], &flags[..]].concat()).code, 0);
    let expected = "--store sqlite:my%20ids.db --guard file:w`";
    for command in [
        &["remove", "orders"][..],
        &["show", "users"],
        &["set", "orders", "--next", "2", "--backwards"],
        &["create", "orders"],
    ] {
        let ran = place.run(&[command, &flags].concat());
        assert!(ran.code != 0 && ran.err.contains(expected), "{command:?}: {ran:?}");
        let json = place.run(&[command, &flags, &["--json"]].concat());
        assert!(json.err.contains("--guard file:w`"), "{command:?}: {json:?}");
    }
    // A command on the default store needs no flags.
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let ran = place.run(&["show", "users"]);
    assert!(!ran.err.contains("--store"), "{ran:?}");
}

#[test]
fn each_step_backwards_needs_yes() {
    let place = Place::new();
    assert_eq!(place.run(&["next", "x", "-n", "99"]).code, 0);
    let lowered = ["set", "x", "--max", "5", "--backwards"];
    let refused = place.run(&lowered);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(refused.err.contains("ids 6 to 99 could repeat"), "{refused:?}");
    assert!(refused.err.contains("--max 5 --backwards --yes"), "{refused:?}");
    assert_eq!(place.run(&[&lowered[..], &["--yes"]].concat()).code, 0);
    assert_eq!(place.run(&["set", "x", "--max", "1000"]).code, 0);
    assert_eq!(place.run(&["next", "x"]).ids(), [6]);
}
