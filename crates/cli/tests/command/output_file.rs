//! The file of `export --output`: its permissions, links to it, and files that cannot be replaced.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::common::{Place, Ran};

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

fn export(place: &Place, file: &str) -> Ran {
    let ran = place.run(&["export", "--output", file]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran
}

#[test]
fn new_file_has_the_permissions_of_the_umask() {
    let place = Place::with_sequence(1, 9);
    let ran = place.shell("umask 027; idmill export --output ids.jsonl").output().unwrap();
    assert!(ran.status.success());
    assert_eq!(mode(&place.path().join("ids.jsonl")), 0o640);
}

#[test]
fn replaced_file_keeps_its_permissions() {
    let place = Place::with_sequence(1, 9);
    let file = place.path().join("ids.jsonl");
    fs::write(&file, "old").unwrap();
    for permissions in [0o600, 0o664] {
        fs::set_permissions(&file, fs::Permissions::from_mode(permissions)).unwrap();
        export(&place, "ids.jsonl");
        assert_eq!(mode(&file), permissions);
    }
    assert_eq!(fs::read_to_string(file).unwrap(), place.run(&["export"]).out);
}

#[test]
fn symbolic_link_is_followed() {
    let place = Place::with_sequence(1, 9);
    fs::create_dir(place.path().join("kept")).unwrap();
    let link = place.path().join("ids.jsonl");
    symlink("kept/ids.jsonl", &link).unwrap();
    // The file of the link is created, then replaced.
    for _ in 0..2 {
        export(&place, "ids.jsonl");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&link).unwrap(), place.run(&["export"]).out);
    }
    assert_eq!(fs::read_dir(place.path().join("kept")).unwrap().count(), 1);
}

#[test]
fn dash_is_stdout_and_a_device_is_written_to() {
    let place = Place::with_sequence(1, 9);
    let ran = export(&place, "-");
    assert_eq!((ran.out, ran.err.as_str()), (place.run(&["export"]).out, ""));
    assert_eq!(place.files(), ["idmill.db"]);
    symlink("/dev/stdout", place.path().join("out")).unwrap();
    assert_eq!(export(&place, "out").out, place.run(&["export"]).out);
    assert_eq!(place.files(), ["idmill.db", "out"]);
}
