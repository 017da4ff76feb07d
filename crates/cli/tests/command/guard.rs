//! A restored store, with a witness and without.

use std::fs;
use std::process::Stdio;

use idmill_sqlite::rusqlite::Connection;

use crate::common::{Place, Ran};

const STORE: &str = "sqlite:ids.db";
const GUARDED: &str = "sqlite:ids.db?guard=file:ids.witness";

fn next(place: &Place, store: &str, count: &str) -> Ran {
    place.run(&["next", "orders", "-n", count, "--store", store])
}

/// Draws the ids 1 to 5, copies the file, draws 6 to 10, and restores the copy.
fn restored(store: &str) -> Place {
    let place = Place::new();
    let [file, copy] = ["ids.db", "copy.db"].map(|file| place.path().join(file));
    assert_eq!(next(&place, store, "5").ids(), [1, 2, 3, 4, 5]);
    fs::copy(&file, &copy).unwrap();
    assert_eq!(next(&place, store, "5").ids(), [6, 7, 8, 9, 10]);
    fs::rename(&copy, &file).unwrap();
    place
}

#[test]
fn restored_copy_without_a_witness_repeats_ids() {
    let place = restored(STORE);
    assert_eq!(next(&place, STORE, "3").ids(), [6, 7, 8]);
}

#[test]
fn restored_store_with_a_witness_continues_above_old_ids() {
    let place = restored(GUARDED);
    let healed = next(&place, GUARDED, "3");
    assert_eq!(healed.ids(), [11, 12, 13]);
    assert!(healed.err.contains("the store went back in time"), "{}", healed.err);
    assert!(healed.err.contains("orders"), "{}", healed.err);
    // The store's next id was raised, so the error is not logged again.
    let after = next(&place, GUARDED, "3");
    assert_eq!(after.ids(), [14, 15, 16]);
    assert!(!after.err.contains("went back"), "{}", after.err);
}

#[test]
fn deleted_store_is_rejected_until_the_sequence_is_removed() {
    let place = restored(GUARDED);
    fs::remove_file(place.path().join("ids.db")).unwrap();
    let refused = next(&place, GUARDED, "1");
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused:?}");
    assert!(refused.err.contains("fix the URL, restore the store, or"), "{}", refused.err);
    // The guard writes the removal to the witness.
    let removed = place.run(&["remove", "orders", "--yes", "--store", GUARDED]);
    assert_eq!(removed.code, 0, "{removed:?}");
    // The ids are above all claims, and there is no false alarm.
    let next = next(&place, GUARDED, "2");
    assert_eq!(next.ids(), [11, 12]);
    assert!(!next.err.contains("went back"), "{}", next.err);
}

#[test]
fn forgotten_name_starts_again_and_only_with_a_guard() {
    let place = restored(GUARDED);
    let removed = place.run(&["remove", "orders", "--yes", "--forget", "--store", GUARDED]);
    assert_eq!(removed.code, 0, "{removed:?}");
    assert_eq!(next(&place, GUARDED, "2").ids(), [1, 2]);
    let refused = place.run(&["remove", "orders", "--yes", "--forget", "--store", STORE]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert_eq!(next(&place, GUARDED, "1").ids(), [3]);
}

#[test]
fn revocation_of_a_restored_store_repeats_nothing() {
    let place = restored(GUARDED);
    assert_eq!(place.run(&["revoke", "orders", "--store", GUARDED]).code, 0);
    let doctor = place.run(&["doctor", "--store", GUARDED]);
    assert!(doctor.code != 0 && doctor.out.contains("went_back"), "{doctor:?}");
    assert_eq!(next(&place, GUARDED, "5").ids(), [11, 12, 13, 14, 15]);
}

#[test]
fn refused_removal_permits_nothing() {
    let place = restored(GUARDED);
    let read_only = "sqlite:ids.db?mode=ro&guard=file:ids.witness";
    let refused = place.run(&["remove", "orders", "--yes", "--store", read_only]);
    assert_ne!(refused.code, 0, "{refused:?}");
    for file in place.files() {
        if file.starts_with("ids.db") {
            fs::remove_file(place.path().join(file)).unwrap();
        }
    }
    let refused = next(&place, GUARDED, "5");
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused:?}");
    assert!(refused.err.contains("fix the URL, restore the store, or"), "{}", refused.err);
}

#[test]
fn set_backwards_through_the_guard_is_followed() {
    let place = restored(GUARDED);
    let set = place.run(&["set", "orders", "--next", "3", "--backwards", "--yes", "--store", GUARDED]);
    assert_eq!(set.code, 0, "{set:?}");
    let after = next(&place, GUARDED, "2");
    assert_eq!(after.ids(), [3, 4]);
    assert!(!after.err.contains("went back"), "{}", after.err);
}

#[test]
fn witness_that_cannot_be_written_costs_no_ids() {
    let guarded = "sqlite:ids.db?guard=sqlite:other.db";
    let place = Place::new();
    assert_eq!(next(&place, guarded, "5").ids(), [1, 2, 3, 4, 5]);
    let many = ["next", "orders", "-n", "1000000", "--timeout", "3s", "--store", STORE];
    let refused = place.run(&[&many[..], &["--guard", "sqlite:other.db?mode=ro"]].concat());
    assert_ne!(refused.code, 0, "{refused:?}");
    assert_eq!(refused.out, "");
    assert!(refused.err.contains("is not writable"), "{}", refused.err);
    assert_eq!(next(&place, guarded, "1").ids(), [6], "nothing was lost");
}

#[test]
fn guard_is_read_from_the_url_flag_or_environment() {
    let place = restored("sqlite:ids.db?guard=file:ids.witness");
    let by_flag = ["next", "orders", "--store", STORE, "--guard", "file:ids.witness"];
    assert_eq!(place.run(&by_flag).ids(), [11]);
    let place = restored("sqlite:ids.db?guard=file:ids.witness");
    let guarded = |args: &[&str]| {
        Ran::from(place.command(args).env("IDMILL_GUARD", "file:ids.witness").output().unwrap())
    };
    assert_eq!(guarded(&["next", "orders", "--store", STORE]).ids(), [11]);
    // The guard in the URL takes precedence over the environment variable. A second guard is an error.
    assert_eq!(guarded(&["next", "orders", "--store", GUARDED]).ids(), [12]);
    let twice = place.run(&["next", "orders", "--store", GUARDED, "--guard", "file:other.witness"]);
    assert_eq!(twice.code, 2, "{twice:?}");
    assert!(twice.err.contains("already has a guard"), "{}", twice.err);
    let wrong =
        Ran::from(place.command(&["next", "orders"]).env("IDMILL_GUARD", "/ids.witness").output().unwrap());
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("environment variable IDMILL_GUARD"), "{}", wrong.err);
}

#[test]
fn store_cannot_be_its_own_witness() {
    let refused = next(&Place::new(), "sqlite:ids.db?guard=sqlite:ids.db", "1");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("is the store itself"), "{}", refused.err);
}

#[test]
fn store_can_be_the_witness_of_another_store() {
    let guarded = "sqlite:ids.db?guard=sqlite:other.db";
    let place = restored(guarded);
    assert_eq!(next(&place, guarded, "1").ids(), [11]);
    let listed = place.run(&["list", "--json", "--store", "sqlite:other.db"]);
    assert_eq!((listed.code, listed.out.as_str()), (0, ""), "a ledger is no sequence");
}

#[test]
fn reading_a_store_needs_and_creates_no_witness() {
    let place = restored(STORE);
    assert_eq!(place.run(&["list", "--store", GUARDED]).code, 0);
    assert_eq!(place.run(&["show", "orders", "--store", GUARDED]).code, 0);
    assert!(!place.files().iter().any(|file| file.contains("witness")), "{:?}", place.files());
}

#[cfg(unix)]
#[test]
fn symbolic_link_to_a_witness_is_followed() {
    let place = Place::new();
    fs::create_dir(place.path().join("other")).unwrap();
    let link = place.path().join("ids.witness");
    assert_eq!(next(&place, "sqlite:ids.db?guard=file:other/w", "5").ids(), [1, 2, 3, 4, 5]);
    std::os::unix::fs::symlink("other/w", &link).unwrap();
    fs::copy(place.path().join("ids.db"), place.path().join("copy.db")).unwrap();
    assert_eq!(next(&place, GUARDED, "5").ids(), [6, 7, 8, 9, 10]);
    assert!(link.is_symlink(), "{:?}", place.files());
    fs::rename(place.path().join("copy.db"), place.path().join("ids.db")).unwrap();
    assert_eq!(next(&place, "sqlite:ids.db?guard=file:other/w", "1").ids(), [11]);
}

#[cfg(unix)]
#[test]
fn witness_with_two_hard_links_is_refused() {
    let place = restored(GUARDED);
    fs::hard_link(place.path().join("ids.witness"), place.path().join("other.witness")).unwrap();
    for store in [GUARDED, "sqlite:ids.db?guard=file:other.witness"] {
        let refused = next(&place, store, "1");
        assert_eq!((refused.code, refused.out.as_str()), (5, ""), "{refused:?}");
        assert!(refused.err.contains("has 2 hard links"), "{}", refused.err);
    }
    fs::remove_file(place.path().join("other.witness")).unwrap();
    assert_eq!(next(&place, GUARDED, "1").ids(), [11]);
}

#[test]
fn witness_url_is_decoded_alike_in_both_places() {
    for file in ["my%20ids.witness", "my+ids.witness"] {
        let place = restored(&format!("sqlite:ids.db?guard=file:{file}"));
        let guard = format!("file:{file}");
        let by_flag = place.run(&["next", "orders", "--store", STORE, "--guard", &guard]);
        assert_eq!(by_flag.ids(), [11], "{by_flag:?}");
    }
}

#[test]
fn witness_file_with_an_unknown_option_is_refused() {
    let place = Place::new();
    for args in [["--store", STORE, "--guard", "file:w?mode=rw"], ["--store", STORE, "--guard", "file:w?x"]] {
        let refused = place.run(&[&["next", "orders"], &args[..]].concat());
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains("unknown option"), "{}", refused.err);
    }
    assert_eq!(next(&place, "sqlite:ids.db?guard=file:w%3Fmode=rw", "1").code, 2);
    assert_eq!(place.files(), [""; 0]);
}

#[cfg(unix)]
#[test]
fn witness_that_is_the_store_by_another_name_is_refused() {
    let place = Place::new();
    assert_eq!(next(&place, "sqlite:ids.db?guard=file:w", "1").ids(), [1]);
    std::os::unix::fs::symlink("ids.db", place.path().join("link.db")).unwrap();
    let absolute = place.path().join("ids.db");
    for guard in ["./ids.db", "link.db", absolute.to_str().unwrap(), "./ids.db?table=kept"] {
        let guard = format!("sqlite:{guard}");
        let refused = place.run(&["next", "orders", "--store", STORE, "--guard", &guard]);
        assert_eq!(refused.code, 2, "{guard}: {refused:?}");
        assert!(refused.err.contains("is the store itself"), "{guard}: {}", refused.err);
    }
    assert_eq!(next(&place, "sqlite:ids.db?guard=file:w", "1").ids(), [2]);
}

#[test]
fn missing_witness_of_a_used_store_is_refused() {
    for witness in ["ids.witness", "w.db"] {
        let guard = if witness == "w.db" { "sqlite:w.db" } else { "file:ids.witness" };
        let guarded = format!("sqlite:ids.db?guard={guard}");
        let place = restored(&guarded);
        fs::remove_file(place.path().join(witness)).unwrap();
        let before = place.files();
        // A draw from another sequence must not create a new witness either.
        for name in ["orders", "users"] {
            let refused = place.run(&["next", name, "--store", &guarded]);
            assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused:?}");
            assert!(refused.err.contains("but ids of \"orders\" were reserved"), "{}", refused.err);
            assert!(refused.err.contains(&format!("`{guard}?new=true`")), "{}", refused.err);
        }
        let existing = place.run(&["next", "orders", "--existing", "--store", &guarded]);
        assert_eq!(existing.code, 1, "{existing:?}");
        assert_eq!(place.files(), before);
        let new = ["next", "orders", "--store", STORE, "--guard", &format!("{guard}?new=true")];
        assert_eq!(place.run(&new).ids(), [6], "a new witness does not change the next id");
        assert_eq!(next(&place, &guarded, "1").ids(), [7]);
    }
}

#[test]
fn concurrent_processes_create_one_witness() {
    for guard in ["file:ids.witness", "sqlite:w.db"] {
        let place = Place::new();
        let store = format!("sqlite:ids.db?guard={guard}");
        let start = || {
            place
                .command(&["next", "orders", "--store", &store])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        };
        let started: Vec<_> = (0..6).map(|_| start().unwrap()).collect();
        let mut ids = Vec::new();
        for child in started {
            let ran = Ran::from(child.wait_with_output().unwrap());
            assert_eq!(ran.code, 0, "{ran:?}");
            ids.extend(ran.ids());
        }
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 6);
    }
}

/// The ids below a raised `next` are in use: no removal and no restore hands them out.
#[test]
fn raises_through_the_guard_are_kept() {
    let place = Place::new();
    let [file, copy] = ["ids.db", "copy.db"].map(|file| place.path().join(file));
    assert_eq!(next(&place, GUARDED, "5").ids(), [1, 2, 3, 4, 5]);
    fs::copy(&file, &copy).unwrap();
    assert_eq!(place.run(&["set", "orders", "--next", "501", "--store", GUARDED]).code, 0);
    fs::copy(&copy, &file).unwrap();
    assert_eq!(next(&place, GUARDED, "1").ids(), [501]);
    let imported = r#"{"format":"1","name":"orders","next":"1001","start":"1","max":"9223372036854775807"}
{"format":"1","sequences":"1"}"#;
    fs::write(place.path().join("ids.jsonl"), imported).unwrap();
    let imported = place.run(&["import", "ids.jsonl", "--store", GUARDED]);
    assert_eq!(imported.code, 0, "{imported:?}");
    assert_eq!(place.run(&["remove", "orders", "--yes", "--store", GUARDED]).code, 0);
    assert_eq!(next(&place, GUARDED, "1").ids(), [1001]);
}

/// The ids in a checked column are in use, although no range with them was claimed.
#[test]
fn ids_below_a_raise_of_the_doctor_stay_used() {
    let place = Place::new();
    let [file, copy, shop] = ["ids.db", "copy.db", "shop.db"].map(|file| place.path().join(file));
    assert_eq!(next(&place, GUARDED, "5").ids(), [1, 2, 3, 4, 5]);
    fs::copy(&file, &copy).unwrap();
    let table = "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (500)";
    Connection::open(shop).unwrap().execute_batch(table).unwrap();
    let raise = ["doctor", "--fix", "--check", "orders=sqlite:shop.db?column=t.id", "--store", GUARDED];
    let raised = place.run(&raise);
    assert!(raised.out.contains("501"), "{raised:?}");
    assert_eq!(place.run(&["remove", "orders", "--yes", "--store", GUARDED]).code, 0);
    assert_eq!(next(&place, GUARDED, "5").ids(), [501, 502, 503, 504, 505]);
    fs::copy(&copy, &file).unwrap();
    assert_ne!(next(&place, GUARDED, "1").code, 0, "the store has the removed sequence");
    assert_eq!(place.run(&["remove", "orders", "--yes", "--store", GUARDED]).code, 0);
    assert_eq!(next(&place, GUARDED, "1").ids(), [506]);
}

/// The store is put back after ids above a raise were drawn.
#[test]
fn ids_below_and_above_a_raise_stay_used_after_a_restore() {
    let place = Place::new();
    let [file, copy] = ["ids.db", "copy.db"].map(|file| place.path().join(file));
    assert_eq!(next(&place, GUARDED, "5").ids(), [1, 2, 3, 4, 5]);
    fs::copy(&file, &copy).unwrap();
    assert_eq!(place.run(&["set", "orders", "--next", "501", "--store", GUARDED]).code, 0);
    assert_eq!(next(&place, GUARDED, "5").ids(), [501, 502, 503, 504, 505]);
    fs::copy(&copy, &file).unwrap();
    assert_eq!(next(&place, GUARDED, "1").ids(), [506]);
}

/// Unguarded processes drew the ids between the claims.
#[test]
fn unclaimed_ids_below_the_claims_stay_used() {
    let place = Place::new();
    let [file, copy] = ["ids.db", "copy.db"].map(|file| place.path().join(file));
    assert_eq!(next(&place, GUARDED, "5").ids(), [1, 2, 3, 4, 5]);
    fs::copy(&file, &copy).unwrap();
    assert_eq!(next(&place, STORE, "995").ids().last(), Some(&1000));
    assert_eq!(next(&place, GUARDED, "5").ids()[0], 1001);
    fs::copy(&copy, &file).unwrap();
    let after = next(&place, GUARDED, "5");
    assert_eq!(after.ids()[0], 1006);
    assert!(after.err.contains("the store went back in time"), "{}", after.err);
}

#[test]
fn export_of_a_restored_store_has_the_claims() {
    let place = restored(GUARDED);
    let exported = place.run(&["export", "--store", GUARDED]);
    assert!(exported.out.contains(r#""next":"11""#), "{exported:?}");
    assert!(exported.err.contains("behind the witness"), "{exported:?}");
    let named = place.run(&["export", "orders", "--store", GUARDED]);
    assert!(named.out.contains(r#""next":"11""#), "{named:?}");
    assert!(place.run(&["export", "--store", STORE]).out.contains(r#""next":"6""#));
    // A store from before the sequence existed lacks it.
    fs::remove_file(place.path().join("ids.db")).unwrap();
    assert_eq!(next(&place, STORE, "1").ids(), [1]);
    assert_eq!(place.run(&["remove", "orders", "--yes", "--store", STORE]).code, 0);
    let lacking = place.run(&["export", "--store", GUARDED]);
    assert_eq!(lacking.code, 1, "{lacking:?}");
    assert!(lacking.err.contains("lacks 1 sequences"), "{lacking:?}");
}

#[test]
fn new_witness_and_needless_new_are_told() {
    let place = Place::new();
    let first = next(&place, GUARDED, "1");
    assert!(first.err.contains("the witness file:ids.witness does not exist, and is created"), "{first:?}");
    assert!(!next(&place, GUARDED, "1").err.contains("witness"));
    let new = ["next", "orders", "--store", STORE, "--guard", "file:ids.witness?new=true"];
    let told = place.run(&new);
    assert!(told.err.contains("leave out `new=true`"), "{told:?}");
}

#[test]
fn doctor_reports_a_sequence_that_ends_below_the_claims() {
    let place = Place::new();
    next(&place, GUARDED, "50");
    assert_eq!(place.run(&["remove", "orders", "--yes", "--store", GUARDED]).code, 0);
    assert_eq!(place.run(&["create", "orders", "--max", "30", "--store", GUARDED]).code, 0);
    assert_eq!(next(&place, GUARDED, "1").code, 3);
    let doctor = place.run(&["doctor", "--store", GUARDED]);
    assert_eq!(doctor.code, 7, "{doctor:?}");
    assert!(doctor.out.contains("but max is 30: no id can be drawn"), "{doctor:?}");
}

#[test]
fn doctor_reports_a_recreated_sequence_below_the_claims() {
    let place = Place::new();
    next(&place, GUARDED, "15");
    assert_eq!(place.run(&["remove", "orders", "--yes", "--store", GUARDED]).code, 0);
    assert_eq!(place.run(&["create", "orders", "--store", STORE]).code, 0);
    let doctor = place.run(&["doctor", "--store", GUARDED]);
    assert!(doctor.code == 6 && doctor.out.contains("orders: recreated"), "{doctor:?}");
    assert_eq!(place.run(&["doctor", "--fix", "--store", GUARDED]).code, 0);
    assert_eq!(next(&place, STORE, "1").ids(), [16]);
}

#[test]
fn doctor_knows_the_ledgers_of_another_store() {
    let place = Place::new();
    assert_eq!(next(&place, GUARDED, "5").code, 0);
    let other = "sqlite:other.db?guard=file:ids.witness";
    assert_eq!(place.run(&["next", "users", "--store", other]).code, 0);
    let doctor = place.run(&["doctor", "--store", GUARDED]);
    assert_eq!(doctor.code, 6, "{doctor:?}");
    assert!(doctor.out.contains("other.db, and this is"), "{doctor:?}");
    assert!(!doctor.out.contains("remove"), "{doctor:?}");
    let refused = next(&place, other, "1");
    assert!(refused.code == 1 && refused.err.contains("the claims of"), "{refused:?}");
}

#[cfg(unix)]
#[test]
fn doctor_rejects_a_witness_that_is_the_store() {
    let place = Place::new();
    assert_eq!(next(&place, "sqlite:ids.db?guard=sqlite:w.db", "1").code, 0);
    std::os::unix::fs::symlink("w.db", place.path().join("same.db")).unwrap();
    let doctor = place.run(&["doctor", "--store", "sqlite:w.db", "--guard", "sqlite:same.db"]);
    assert!(doctor.code >= 7 && doctor.out.contains("is the store itself"), "{doctor:?}");
}

#[test]
fn lost_witness_is_not_a_lost_sequence() {
    let place = restored(GUARDED);
    fs::rename(place.path().join("ids.witness"), place.path().join("moved")).unwrap();
    for command in
        [&["remove", "orders", "--yes"][..], &["set", "orders", "--next", "1", "--backwards", "--yes"]]
    {
        let refused = place.run(&[command, &["--store", GUARDED]].concat());
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(
            refused.err.contains("ids.witness") && !refused.err.contains("no such sequence"),
            "{refused:?}"
        );
    }
}
