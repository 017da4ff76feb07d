//! The page as HTML, before any script.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use super::view::{Asked, Column, Sequence, Sort, View};

const PAGE: &str = include_str!("index.html");
const ROW: &str = include_str!("row.html");

/// What a reader without a token is shown where one is required.
pub(super) fn locked() -> String {
    page(|key| match key {
        "title" => "idmill".into(),
        "access" => "locked".into(),
        "state" => "Locked".into(),
        "hidden_previous" | "hidden_next" => "hidden".into(),
        _ => "".into(),
    })
}

pub(super) fn open(view: &View, asked: &Asked) -> String {
    let shown = texts(&view.server.shown);
    let hidden = |is_shown: bool| if is_shown { "" } else { "hidden" };
    page(|key| match key {
        "access" => "open".into(),
        "server_state" => view.server.state.name().into(),
        "version" => env!("CARGO_PKG_VERSION").into(),
        "search" => escaped(&asked.search),
        "rows" => view.sequences.iter().map(row).collect::<String>().into(),
        "previous" => link(asked, view.sort, view.page.saturating_sub(1)).into(),
        "next" => link(asked, view.sort, view.page + 1).into(),
        "hidden_previous" => hidden(view.page > 1).into(),
        "hidden_next" => hidden(view.page < view.pages).into(),
        _ => shown.get(key).map_or_else(|| column(key, asked, view.sort), |text| escaped(text)),
    })
}

/// The texts by their names, which templates and script use.
fn texts(shown: &impl Serialize) -> BTreeMap<String, String> {
    let shown = serde_json::to_value(shown).and_then(serde_json::from_value);
    shown.expect("text under names")
}

/// What a heading says of the sorting, and where it leads.
fn column(key: &str, asked: &Asked, sort: Sort) -> Cow<'static, str> {
    let Some((what, name)) = key.split_once(':') else { return "".into() };
    let (name, first_falling) = name.strip_prefix('-').map_or((name, false), |name| (name, true));
    let Some(by) = Column::named(name) else { return "".into() };
    match what {
        "aria" if sort.by != by => "none".into(),
        "aria" if sort.falling => "descending".into(),
        "aria" => "ascending".into(),
        "selected" if sort.by == by => "selected".into(),
        "href" => {
            let falling = if sort.by == by { !sort.falling } else { first_falling };
            link(asked, Sort { by, falling }, 1).into()
        }
        _ => "".into(),
    }
}

fn link(asked: &Asked, sort: Sort, page: usize) -> String {
    let mut query = format!("?sort={sort}");
    if !asked.search.is_empty() {
        query += "&search=";
        query.extend(form_urlencoded::byte_serialize(asked.search.as_bytes()));
    }
    if page > 1 {
        query += "&page=";
        query += &page.to_string();
    }
    escaped(&query).into_owned()
}

fn page(value: impl Fn(&str) -> Cow<'static, str>) -> String {
    fill(PAGE, |key| match key {
        "template" => fill(ROW, |_| "".into()).into(),
        _ => value(key),
    })
}

fn row(sequence: &Sequence) -> String {
    let shown = texts(&sequence.shown);
    fill(ROW, |key| shown.get(key).map_or("".into(), |text| escaped(text)))
}

/// A text with `{{key}}` in it, and a value for each key. Values are not read again: a name may be `{{key}}`
/// too.
fn fill(text: &'static str, value: impl Fn(&str) -> Cow<'static, str>) -> String {
    let mut parts = text.split("{{");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (key, rest) = part.split_once("}}").expect("each {{ is closed");
        filled += &value(key);
        filled += rest;
    }
    filled
}

/// Text in HTML, between tags or within quotes.
fn escaped(text: &str) -> Cow<'static, str> {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            _ => escaped.push(character),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_not_read_again_and_is_escaped() {
        let filled =
            fill("<b>{{a}}</b>{{b}}", |key| if key == "a" { escaped("{{b}}<\"'&") } else { "B".into() });
        assert_eq!(filled, "<b>{{b}}&lt;&quot;&#39;&amp;</b>B");
    }

    #[test]
    fn a_locked_page_has_no_rows() {
        let page = locked();
        assert!(page.contains("data-access=\"locked\"") && !page.contains("{{"), "{page}");
        assert!(!page.split_once("<tbody").unwrap().1.split_once("</tbody>").unwrap().0.contains("<tr"));
    }
}
