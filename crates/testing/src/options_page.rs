//! The table of a store's options on its page.

use idmill_kit::options::{Described, Entry, Options};

/// Returns the table as Markdown, with a row per option.
fn markdown(entries: &[Entry<'_>]) -> String {
    let head = "| option | takes | default | meaning |\n|---|---|---|---|\n".to_owned();
    head + &entries.iter().map(|entry| row(entry.about)).collect::<String>()
}

/// Checks the table on a store's page.
pub trait OptionsPage: Options {
    /// Checks that the Markdown file `page` contains the table of these options, between the lines
    /// `<!-- options -->` and `<!-- end of options -->`. `name` replaces the word `options` on a page with
    /// several tables. With `IDMILL_DOCS=write` in the environment, the table is written instead.
    fn documented(&self, page: &str, name: &str) {
        documented(&self.clone().entries(), page, name);
    }
}

impl<O: Options> OptionsPage for O {}

fn documented(entries: &[Entry<'_>], page: &str, name: &str) {
    let read = std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{page}: {error}"));
    let written = with_table(&read, name, &markdown(entries));
    let written = written
        .unwrap_or_else(|| panic!("{page} has no lines `<!-- {name} -->` and `<!-- end of {name} -->`"));
    if std::env::var_os("IDMILL_DOCS").is_some_and(|what| what == "write") {
        return std::fs::write(page, written).unwrap_or_else(|error| panic!("{page}: {error}"));
    }
    assert!(
        read == written,
        "{page} is stale; run this test with `IDMILL_DOCS=write` to update it:\n{written}"
    );
}

fn row(option: Described) -> String {
    let Described { key, kind, default, means } = option;
    let (means, _) = means.split_once("\n\n").unwrap_or((means, ""));
    let means = means.split_whitespace().collect::<Vec<_>>().join(" ");
    // The default of an option that may be unset is the last sentence of its meaning.
    let (means, unset) = means.split_once(" Default: ").unwrap_or((&means, ""));
    let default =
        if default.is_empty() { unset.trim_end_matches('.').to_owned() } else { format!("`{default}`") };
    let cells = [format!("`{key}`"), kind.takes(), default, means.to_owned() + &kind.glossary()];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

/// Replaces the table between the markers of a page. Returns `None` if there are no markers.
fn with_table(page: &str, name: &str, table: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    // Markdown requires a blank line between HTML and a table.
    Some(format!("{before}{begin}\n{table}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use idmill_kit::Mode;
    use idmill_kit::options::{FILE, duration, words};

    use super::*;

    idmill_kit::options! {
        struct Toy {}
        /// What opening
        /// may do.
        ///
        /// Not on the page.
        mode: Mode = "rwc" in words::<Mode>();
        /// A|b.
        timeout: Option<Duration> = "5s" in duration("1s", "1h").or_none();
        /// Whom to trust. Default: the system's list.
        ca: Option<String> = "" in FILE;
    }
    const TABLE: &str = "| option | takes | default | meaning |
|---|---|---|---|
| `mode` | `ro`, `rw`, `rwc` | `rwc` | What opening may do. `ro`: read-only. `rw`: must exist. `rwc`: may create. |
| `timeout` | 1s to 1h, or `none` | `5s` | A\\|b. |
| `ca` | the path of a file | the system's list | Whom to trust. |
";

    #[test]
    fn a_row_has_all_of_an_option() {
        assert_eq!(markdown(&Toy::with_defaults().entries()), TABLE);
    }

    #[test]
    fn only_the_table_of_this_name_is_written() {
        let page = "a\n<!-- x -->\nold\n<!-- end of x -->\n<!-- y -->\n<!-- end of y -->\nb\n";
        let written = with_table(page, "x", "| new |\n").unwrap();
        let expected = "a\n<!-- x -->\n\n| new |\n\n<!-- end of x -->\n<!-- y -->\n<!-- end of y -->\nb\n";
        assert_eq!(written, expected);
        assert_eq!(with_table(&written, "x", "| new |\n").unwrap(), written);
        assert_eq!(with_table(page, "z", ""), None);
    }

    #[test]
    #[should_panic(expected = "has no lines `<!-- nowhere -->`")]
    fn a_page_without_the_table_is_found() {
        Toy::with_defaults().documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "nowhere");
    }
}
