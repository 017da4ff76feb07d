//! A child process that ends when we do.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, test_kill_process_group, waitid,
};

/// Between two looks at something that cannot be awaited.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// What a signal brings about is not waited for any longer.
const LONGEST: Duration = Duration::from_secs(2);

/// A child in a process group of its own, which every signal goes to, as to its children
/// elsewhere. Killed when dropped.
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

    /// Signals the group, and what has left it since; returns the latter.
    fn signal_all(&self, signal: Signal) -> Vec<Pid> {
        // Each may have ended by itself, which is found where it matters.
        let left = descendants(self.group);
        let _ = kill_process_group(self.group, signal);
        for pid in &left {
            let _ = kill_process(*pid, signal);
        }
        left
    }

    /// SIGSTOP; returns once the child stands still: for a moment after the signal was
    /// sent, its threads may go on.
    pub(super) fn pause(&self) {
        // Twice: what was forked between the look and the signal is found once nothing forks any more.
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

    /// SIGKILL; returns when all of the group is gone.
    pub(super) fn kill(&mut self) {
        // All of these fail only where there is nothing left to end.
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        // Its forks die on their own time, and may hold a port until then. One that
        // nobody waits for stays for ever.
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

/// The children and theirs, some of which make groups of their own (PostgreSQL's do). Known on Linux alone.
fn descendants(pid: Pid) -> Vec<Pid> {
    let id = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?));
    children.flat_map(|child| std::iter::once(child).chain(descendants(child))).collect()
}

/// One letter, T for one that stands; `None` if it is gone.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next().filter(|state| !matches!(state, 'Z' | 'X'))
}

/// A shell that kills the group when its own standard input ends: that is when we do, whatever ends us.
fn keeper(child: &Child) -> io::Result<Child> {
    let mut keeper = Command::new("/bin/sh");
    keeper.args(["-c", r#"read -r _; kill -s KILL -- "-$1""#, "keeper", &child.id().to_string()]);
    keeper.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}
