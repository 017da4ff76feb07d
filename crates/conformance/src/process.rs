//! A child process that ends when this process ends.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, test_kill_process_group, waitid,
};

/// The interval of polls for events that cannot be awaited.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// The maximum wait for the effect of a signal.
const LONGEST: Duration = Duration::from_secs(2);

/// A child in its own process group. Every signal goes to the group, and to descendants that have left it.
/// Killed on drop.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) child: Child,
    group: Pid,
    keeper: Child,
}

impl Process {
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        let mut child = command.process_group(0).spawn()?;
        match keeper(&child) {
            Ok(keeper) => Ok(Self { group: Pid::from_child(&child), child, keeper }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.signal_all(signal);
    }

    /// Signals the group and the descendants that have left it. Returns these descendants.
    fn signal_all(&self, signal: Signal) -> Vec<Pid> {
        // Ignore errors: any process may have ended already.
        let left = descendants(self.group);
        let _ = kill_process_group(self.group, signal);
        for pid in &left {
            let _ = kill_process(*pid, signal);
        }
        left
    }

    /// Sends SIGSTOP, and returns once the child has stopped: its threads may run for a moment after the
    /// signal.
    pub(super) fn pause(&self) {
        // Signal twice: a process can fork until the first signal stops it, and the second call finds that
        // fork.
        self.signal(Signal::STOP);
        let left = self.signal_all(Signal::STOP);
        let looking = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let begun = Instant::now();
        while matches!(waitid(WaitId::Pid(self.group), looking), Ok(None)) && begun.elapsed() < LONGEST {
            thread::sleep(LOOK / 10);
        }
        while left.iter().any(|pid| state(*pid).is_some_and(|state| state != 'T'))
            && begun.elapsed() < LONGEST
        {
            thread::sleep(LOOK / 10);
        }
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGKILL, and returns when the whole group is gone, or [`LONGEST`] after the child's end.
    pub(super) fn kill(&mut self) {
        // Ignore errors: these calls fail only if the processes have ended.
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        // The child's forks die asynchronously, and may hold a port until then. A zombie that is never reaped
        // stays forever, so the wait is limited.
        let begun = Instant::now();
        while test_kill_process_group(self.group).is_ok() && begun.elapsed() < LONGEST {
            thread::sleep(LOOK);
        }
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// All descendants, also outside of the group: PostgreSQL's processes create their own groups, for example.
/// Empty on systems other than Linux.
fn descendants(pid: Pid) -> Vec<Pid> {
    let id = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?));
    children.flat_map(|child| std::iter::once(child).chain(descendants(child))).collect()
}

/// The state letter, T for a stopped process; `None` if it is gone.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next().filter(|state| !matches!(state, 'Z' | 'X'))
}

/// A shell that kills the group when its own standard input ends, which happens whenever this process ends.
fn keeper(child: &Child) -> io::Result<Child> {
    let mut keeper = Command::new("/bin/sh");
    keeper.args(["-c", r#"read -r _; kill -s KILL -- "-$1""#, "keeper", &child.id().to_string()]);
    keeper.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}
