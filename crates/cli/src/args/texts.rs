//! The arguments of the commands that read and write files or texts: `export`, `import`, `encode`, `decode`.

use std::path::PathBuf;

use clap::Args;
use idmill::SequenceName;

use super::sequences::Within;
use super::values::{id, sequence};

#[derive(Args, Debug)]
pub(crate) struct Encode {
    /// Format, such as 'base62|prefix(u_)'
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: String,
    /// Ids to encode [default: from stdin]
    #[arg(value_name = "ID", value_parser = id, allow_negative_numbers = true)]
    pub(crate) ids: Vec<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Decode {
    /// Format in which the ids were encoded
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: String,
    /// Texts to decode [default: from stdin]
    #[arg(value_name = "TEXT")]
    pub(crate) texts: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Export {
    /// Names of the sequences [default: all]
    #[arg(value_name = "NAME", value_parser = sequence)]
    pub(crate) names: Vec<SequenceName>,
    /// Only sequences whose names start with this prefix
    #[arg(long, value_name = "TEXT", conflicts_with = "names")]
    pub(crate) prefix: Option<String>,
    /// Write to this file, replaced only when complete [default: stdout]
    ///
    /// `-` is stdout. A symbolic link is followed. A new file has the permissions of the umask, and a
    /// replaced file keeps its permissions.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) within: Within,
}

#[derive(Args, Debug)]
pub(crate) struct Import {
    /// File written by `export` [default: stdin]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Report the changes without making them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Skip lines that cannot be read
    #[arg(long)]
    pub(crate) keep_going: bool,
    #[command(flatten)]
    pub(crate) within: Within,
}
