//! The owner and mode of the file, and its mount. A process of another user, such as an operator's command as
//! root, must not take the witness away from the service.

#[cfg(not(unix))]
pub(super) use elsewhere::{is_mounted, keep, make_private};
#[cfg(unix)]
pub(super) use unix::{inherit, is_mounted, keep, make_private};

#[cfg(unix)]
mod unix {
    use std::fs::{File, Metadata, OpenOptions, Permissions};
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
    use std::path::Path;

    use idmill::{Error, ErrorKind, Result};

    /// Lets only the owner open a new file, until its owner and mode are set.
    pub(in super::super) fn make_private(options: &mut OpenOptions) {
        options.mode(0o600);
    }

    /// Gives the new file the owner, group and mode of the file that it will replace.
    pub(in super::super) fn keep(new: &File, old: &Metadata, witness: &Path) -> Result<()> {
        let kept = || {
            let own = new.metadata()?;
            let differing = |own, old| if own == old { None } else { Some(old) };
            let (user, group) = (differing(own.uid(), old.uid()), differing(own.gid(), old.gid()));
            if user.or(group).is_some() {
                fchown(new, user, group)?;
            }
            new.set_permissions(Permissions::from_mode(old.mode() & 0o777))
        };
        kept().map_err(|error: std::io::Error| {
            let message = format!(
                "{} belongs to {}:{}, which a write as this user would change; run as that user, or `chown` the file",
                witness.display(),
                old.uid(),
                old.gid()
            );
            Error::new(ErrorKind::Denied, message).because(error)
        })
    }

    /// Gives a new witness the owner and group of its directory, if permitted: root's witness would be of no
    /// use to the service.
    pub(in super::super) fn inherit(new: &File, directory: &File) {
        if let Ok(data) = directory.metadata() {
            fchown(new, Some(data.uid()), Some(data.gid())).ok();
        }
    }

    /// Returns whether the file, and not only its directory, is a mount point, such as one of `docker -v`.
    /// The device numbers do not show this: both may be on one device, and in an overlay they always differ.
    #[cfg(target_os = "linux")]
    pub(in super::super) fn is_mounted(file: &File, directory: &File) -> bool {
        use std::os::fd::AsRawFd as _;
        let mount = |file: &File| {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
            info.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(|id| id.trim().to_owned())
        };
        matches!((mount(file), mount(directory)), (Some(file), Some(directory)) if file != directory)
    }

    #[cfg(not(target_os = "linux"))]
    pub(in super::super) fn is_mounted(_: &File, _: &File) -> bool {
        false
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use std::fs::{File, Metadata, OpenOptions};
    use std::path::Path;

    use idmill::Result;

    pub(in super::super) fn make_private(_: &mut OpenOptions) {}

    pub(in super::super) fn keep(_: &File, _: &Metadata, _: &Path) -> Result<()> {
        Ok(())
    }

    pub(in super::super) fn is_mounted(_: &File, _: &File) -> bool {
        false
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{MetadataExt as _, chown};
    use std::path::Path;

    use super::super::place::Place;
    use super::is_mounted;

    fn owner(path: &Path) -> (u32, u32) {
        let data = std::fs::metadata(path).unwrap();
        (data.uid(), data.gid())
    }

    /// Only root may give a file to another user. For any other user, the owner stays the same.
    #[test]
    fn owner_of_the_witness_and_its_directory_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::of(&directory.path().join("w")).unwrap();
        let is_root = chown(directory.path(), Some(12_345), Some(54_321)).is_ok();
        place.create().unwrap();
        assert_eq!(owner(&place.file), owner(directory.path()), "a new witness");
        for (user, group) in [(None, None), (Some(23_456), None), (None, Some(65_432))] {
            if is_root {
                chown(&place.file, user, group).unwrap();
            }
            let before = owner(&place.file);
            assert!(place.replace(&place.lock().unwrap(), "new").unwrap());
            assert_eq!(owner(&place.file), before);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_a_file_of_another_mount_is_mounted() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("w")).unwrap();
        let directory = File::open(directory.path()).unwrap();
        assert!(!is_mounted(&file, &directory));
        assert!(is_mounted(&File::open("/proc/version").unwrap(), &directory));
    }
}
