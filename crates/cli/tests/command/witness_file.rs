//! A witness in a file, which other users and programs affect.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use idmill::SequenceName;
use idmill_guard::{FileWitness, Witness as _};
use idmill_testing::skip;

use crate::common::{Place, Ran};

const GUARDED: &str = "sqlite:ids.db?guard=file:w/ids.witness";
const NEXT: [&str; 5] = ["next", "orders", "--timeout", "20s", "--store"];

/// Creates a directory for the witness, in which the ids 1 and 2 were drawn.
fn guarded() -> Place {
    let place = Place::new();
    fs::create_dir(place.path().join("w")).unwrap();
    assert_eq!(place.run(&[&NEXT[..], &[GUARDED, "-n", "2"]].concat()).ids(), [1, 2]);
    place
}

fn next(place: &Place) -> Ran {
    place.run(&[&NEXT[..], &[GUARDED]].concat())
}

/// `docker -v ids.witness:/app/ids.witness` mounts the file, which then cannot be replaced.
#[cfg(target_os = "linux")]
#[test]
fn witness_mounted_as_a_file_is_rejected_and_costs_no_ids() {
    let place = guarded();
    let idmill = env!("CARGO_BIN_EXE_idmill");
    fs::write(place.path().join("mounted"), "").unwrap();
    let script = format!(
        "mount --bind w/ids.witness mounted || exit 77; exec '{idmill}' next orders -n 5 --timeout 3s --store \
         'sqlite:ids.db?guard=file:mounted'"
    );
    let ran = Command::new("unshare").args(["-rm", "sh", "-c", &script]).current_dir(place.path()).output();
    let Some(ran) = ran.ok().map(Ran::from).filter(|ran| !matches!(ran.code, 1 | 77)) else {
        return skip("this user may not mount");
    };
    assert_eq!((ran.code, ran.out.as_str()), (5, ""), "{ran:?}");
    assert!(ran.err.contains("mount its directory instead"), "{}", ran.err);
    assert_eq!(next(&place).ids(), [3]);
}

/// Returns the output of `idmill` as the user `nobody`.
fn as_nobody(place: &Place) -> Option<Ran> {
    let mut command = place.command(&[&NEXT[..], &[GUARDED]].concat());
    match command.uid(65534).gid(65534).output() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
        ran => Some(ran.unwrap().into()),
    }
}

#[test]
fn command_of_root_leaves_the_witness_to_its_user() {
    let place = guarded();
    let at = |name: &str| place.path().join(name);
    if ["", "w", "ids.db", "w/ids.witness"]
        .iter()
        .any(|name| chown(at(name), Some(65534), Some(65534)).is_err())
    {
        return skip("only root may change the owner of a file");
    }
    // Root leaves a temporary file behind, too.
    fs::write(at("w/ids.witness.new"), "").unwrap();
    let umask = format!("umask 077; idmill {} '{GUARDED}'", NEXT.join(" "));
    assert_eq!(Ran::from(place.shell(&umask).output().unwrap()).ids(), [3]);
    let data = fs::metadata(at("w/ids.witness")).unwrap();
    assert_eq!((data.uid(), data.gid(), data.mode() & 0o777), (65534, 65534, 0o644));
    let Some(ran) = as_nobody(&place) else { return skip("the program is in a private directory") };
    assert_eq!(ran.ids(), [4], "{ran:?}");

    // The service must not make root's file its own.
    chown(at("w/ids.witness"), Some(0), Some(65534)).unwrap();
    fs::set_permissions(at("w/ids.witness"), fs::Permissions::from_mode(0o660)).unwrap();
    let ran = as_nobody(&place).unwrap();
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
    assert!(ran.err.contains("belongs to 0:65534"), "{}", ran.err);
    assert_eq!(fs::metadata(at("w/ids.witness")).unwrap().uid(), 0);
    assert_eq!(next(&place).ids(), [5]);
}

#[test]
fn new_witness_belongs_to_the_owner_of_its_directory() {
    let place = Place::new();
    let directory = place.path().join("w");
    fs::create_dir(&directory).unwrap();
    if chown(&directory, Some(65534), Some(65534)).is_err() {
        return skip("only root may change the owner of a file");
    }
    assert_eq!(next(&place).ids(), [1]);
    assert_eq!(fs::metadata(directory.join("ids.witness")).unwrap().uid(), 65534);
}

/// Processes draw while all files but the witness are removed.
#[test]
fn removed_locks_and_temporary_files_lose_no_claim() {
    let place = guarded();
    let directory = place.path().join("w");
    let many = [&NEXT[..], &[GUARDED, "-n", "2000", "--step", "10"]].concat();
    let start = |_| place.command(&many).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut children: Vec<_> = (0..6).map(start).collect();
    for pause in (0..).map(|round| Duration::from_micros(round * 7919 % 9_000)) {
        fs::remove_file(directory.join("ids.witness.lock")).ok();
        if pause < Duration::from_micros(500) {
            let files = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
            files.filter(|file| !file.ends_with("ids.witness")).for_each(|file| drop(fs::remove_file(file)));
        }
        std::thread::sleep(pause);
        if children.iter_mut().all(|child| child.try_wait().unwrap().is_some()) {
            break;
        }
    }
    let mut ids = vec![1, 2];
    for child in children {
        let ran = Ran::from(child.wait_with_output().unwrap());
        // A process whose temporary files are always removed fails in the end.
        assert!(matches!(ran.code, 0 | 75), "{ran:?}");
        assert!(!ran.err.contains("went back in time"), "{}", ran.err);
        ids.extend(ran.ids());
    }
    let claimed = claimed(&directory.join("ids.witness"));
    let unclaimed: Vec<_> = ids.iter().filter(|id| !claimed(**id)).collect();
    assert_eq!(unclaimed, [&0; 0], "ids without a claim");
    let drawn = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(drawn, ids.len());
}

/// Returns whether the witness has a claim of an id of `orders`.
fn claimed(witness: &Path) -> impl Fn(u64) -> bool + use<> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (witness, name) =
        (FileWitness::open_existing(witness).unwrap(), SequenceName::new("orders").unwrap());
    let ledger = runtime.block_on(witness.read(&name)).unwrap().unwrap();
    move |id| u128::from(id) < ledger.floor || ledger.claims.iter().any(|claim| claim.contains(id))
}
