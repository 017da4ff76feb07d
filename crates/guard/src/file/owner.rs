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
