//! Names are kept as they are.

use std::collections::BTreeSet;
use std::sync::Arc;

use idmill::SequenceName;
use idmill::store::{Bounds, Reserve, SequenceInfo};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::context::Context;
use crate::outcome::{Outcome, check};

/// Names that some store may confuse, cut off, interpret as a pattern, or reject.
const TRICKY: &[&str] = &[
    // Case, and letters whose length changes with the case.
    "orders",
    "Orders",
    "ORDERS",
    "i",
    "I",
    "ı",
    "İ",
    "ß",
    "ss",
    "SS",
    "ſ",
    "σ",
    "ς",
    "Σ",
    "K",
    "\u{212a}",
    // Indistinguishable texts: composed, decomposed and compatibility forms, look-alikes, and invisible
    // characters.
    "é",
    "e\u{301}",
    "ﬁ",
    "fi",
    "Å",
    "\u{212b}",
    "A\u{30a}",
    "①",
    "1",
    "ａ",
    "a",
    "а",
    "a\u{200b}",
    "\u{200b}a",
    "\u{feff}a",
    "a\u{200d}b",
    "ab",
    "a\u{ad}b",
    "a\u{202e}b",
    "a\u{fe0f}",
    // White space inside, because names must not begin or end with it.
    "a b",
    "a  b",
    "a\u{a0}b",
    "a\u{3000}b",
    "a\u{2028}b",
    // Separators, quotes, escapes, patterns and paths of other systems.
    "a.b",
    "a..b",
    ".",
    "..",
    "...",
    "a.",
    ".a",
    "/",
    "//",
    "a/b",
    "a//b",
    "/a",
    "a/",
    "\\",
    "\\\\",
    "a\\b",
    "\\0",
    "\\n",
    "'",
    "''",
    "\"",
    "\"\"",
    "`",
    "``",
    "'; DROP TABLE idmill_sequences; --",
    "--",
    "/*",
    "*/",
    "#",
    ";",
    ":",
    "::",
    "a:b",
    "%",
    "%%",
    "%25",
    "%00",
    "%2F",
    "a%b",
    "_",
    "__",
    "a_b",
    "axb",
    "*",
    "?",
    "a*",
    "[a]",
    "{a}",
    "(a)",
    "{}",
    "[]",
    "()",
    "$",
    "$a",
    "$where",
    "$set",
    "@",
    "&",
    "a&b=c",
    "=",
    "+",
    "a+b",
    "~",
    "^",
    "|",
    "<a>",
    "!",
    ",",
    "a,b",
    "-",
    "-a",
    "--a",
    // Keywords of stores and languages, and number-like texts.
    "null",
    "NULL",
    "None",
    "nil",
    "true",
    "undefined",
    "NaN",
    "0",
    "00",
    "-1",
    "1e3",
    "0x10",
    "__name__",
    "__foo__",
    "_id",
    "system.x",
    "id",
    "name",
    "next",
    "select",
    "SELECT",
    "default",
    "con",
    "nul",
    "aux",
    // Other scripts and planes, the last code points, and noncharacters.
    "строка",
    "序列",
    "シーケンス",
    "हिन्दी",
    "עברית",
    "😀",
    "😁",
    "👨‍👩‍👧",
    "𐍈",
    "\u{e000}",
    "\u{fffd}",
    "\u{ffff}",
    "\u{10ffff}",
    "\u{10fffe}",
];

/// All names: those above, every printable ASCII character, and every legal length.
pub(super) fn names() -> Vec<SequenceName> {
    let mut texts: BTreeSet<String> = TRICKY.iter().map(|&text| text.to_owned()).collect();
    texts.extend(('!'..='~').map(String::from));
    texts.extend(('!'..='~').map(|c| format!("a{c}b")));
    texts.extend((1..=SequenceName::MAX_LEN).map(|length| "n".repeat(length)));
    // Two names that differ only in the last of 200 bytes.
    texts.extend(["x", "y"].map(|end| "z".repeat(SequenceName::MAX_LEN - 1) + end));
    texts.extend([2, 4].map(|width| if width == 2 { "é".repeat(100) } else { "😀".repeat(50) }));
    texts.iter().map(|text| SequenceName::new(text).expect("legal")).collect()
}

/// Bounds that identify the sequence.
fn bounds(number: usize) -> Bounds {
    let start = 1_000_000 + 1_000 * number as u64;
    Bounds::new(start, start + 500).expect("at least one id")
}

/// Creates every other sequence explicitly, and reserves from all of them, with all clients concurrently.
async fn make(clients: &[Client], names: &[SequenceName], window: u64) -> Outcome {
    let mut making: JoinSet<Outcome> = JoinSet::new();
    for (lane, client) in clients.iter().cloned().enumerate() {
        let lanes = clients.len();
        let own: Vec<_> =
            names.iter().cloned().enumerate().filter(|(number, _)| number % lanes == lane).collect();
        making.spawn(async move {
            for (number, name) in own {
                let bounds = bounds(number);
                if number % 2 == 0 {
                    client.create(&name, bounds).await??;
                }
                let request = Reserve::new(name, 5).create(bounds);
                let grant = client.reserve(&request).await??;
                // Ids of a window are skipped if their reply timed out.
                let skipped = grant.range.start().checked_sub(bounds.start());
                check!(
                    skipped.is_some_and(|ids| ids <= window.min(500)),
                    "`{}` was granted ids of another sequence: {:?} instead of ids from {}",
                    request.name,
                    grant.range,
                    bounds.start()
                );
            }
            Ok(())
        });
    }
    while let Some(outcome) = making.join_next().await {
        outcome??;
    }
    Ok(())
}

fn is_number(info: &SequenceInfo, number: usize, windowed: bool) -> bool {
    let expected = bounds(number);
    info.bounds == expected && (windowed || info.next == Some(expected.start() + 5))
}

pub(super) async fn names_are_kept(context: Arc<Context>) -> Outcome {
    let names = names();
    let clients = context.connect_many(4).await?;
    // Remove leftovers before any sequence is created: if a store confuses two names, a later removal would
    // remove the wrong sequence.
    let before: BTreeSet<_> = clients[0].list().await??.into_iter().map(|info| info.name).collect();
    for name in &names {
        context.forget_later(name.clone());
        if before.contains(name) {
            clients[0].remove(name).await??;
        }
    }
    make(&clients, &names, context.window()).await?;
    for (number, name) in names.iter().enumerate() {
        let info = clients[0].look(name).await?;
        check!(
            is_number(&info, number, context.windowed()),
            "inspect of `{name}` returned another sequence: {info:?}"
        );
    }
    let listed = clients[1].list().await??;
    let wanted: BTreeSet<_> = names.iter().collect();
    let found: Vec<_> = listed.iter().filter(|info| wanted.contains(&info.name)).collect();
    for (number, name) in names.iter().enumerate() {
        let of_it: Vec<_> = found.iter().filter(|info| info.name == *name).collect();
        check!(of_it.len() == 1, "`{name}` is listed {} times", of_it.len());
        check!(
            is_number(of_it[0], number, context.windowed()),
            "`{name}` is listed as another sequence: {:?}",
            of_it[0]
        );
    }
    check!(listed.windows(2).all(|pair| pair[0].name < pair[1].name), "the list is not sorted by name");
    let removed = &names[names.len() / 2];
    check!(clients[2].remove(removed).await??, "`{removed}` cannot be removed");
    let left = clients[3].list().await??.iter().filter(|info| wanted.contains(&info.name)).count();
    check!(left == names.len() - 1, "removing `{removed}` removed {} sequences", names.len() - left);
    Ok(())
}
