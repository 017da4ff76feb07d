//! Renders the page as HTML, which works without scripts.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::{Value, json};

use super::view::{Asked, COLUMNS, Sort, View};

/// The templates. Inserted text is escaped.
static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = Environment::new();
    for (name, text) in [("index.html", include_str!("index.html")), ("row.html", include_str!("row.html"))] {
        templates.add_template(name, text).expect("tests render this template");
    }
    templates
});

/// Renders the page that asks for a token.
pub(super) fn locked() -> String {
    let shown = json!({ "title": "idmill", "state": "Locked" });
    let columns = COLUMNS.map(|(name, ..)| (name, json!({})));
    let columns = BTreeMap::from(columns);
    filled("index.html", &json!({ "access": "locked", "shown": shown, "columns": columns }))
}

pub(super) fn open(view: &View, asked: &Asked) -> String {
    let columns = BTreeMap::from(COLUMNS.map(|(name, ..)| (name, heading(asked, name))));
    let server = &view.json["server"];
    let values = json!({
        "access": "open",
        "state": server["state"],
        "shown": server["shown"],
        "version": env!("CARGO_PKG_VERSION"),
        "search": asked.search,
        "columns": columns,
        "sequences": view.json["sequences"],
        "previous": link(asked, asked.sort, view.page.saturating_sub(1)),
        "next": link(asked, asked.sort, view.page + 1),
        "has_previous": view.page > 1,
        "has_next": view.page < view.pages,
    });
    filled("index.html", &values)
}

fn filled(template: &str, values: &Value) -> String {
    let filled = TEMPLATES.get_template(template).and_then(|template| template.render(Serde(values)));
    filled.expect("tests render this template")
}

/// Returns the sort state of a heading, and its link.
fn heading(asked: &Asked, name: &str) -> Value {
    let (sort, column) = (asked.sort, Sort::by(name).expect("the name is a column"));
    let is_by = sort.column == column;
    let falling = if is_by { !sort.falling } else { COLUMNS[column].1 };
    let aria = match (is_by, sort.falling) {
        (false, _) => "none",
        (true, true) => "descending",
        (true, false) => "ascending",
    };
    let selected = if is_by { "selected" } else { "" };
    json!({ "aria": aria, "selected": selected, "href": link(asked, Sort { column, falling }, 1) })
}

fn link(asked: &Asked, sort: Sort, page: usize) -> String {
    let mut query = form_urlencoded::Serializer::for_suffix("?".to_owned(), 1);
    query.append_pair("sort", &sort.to_string());
    if !asked.search.is_empty() {
        query.append_pair("search", &asked.search);
    }
    if page > 1 {
        query.append_pair("page", &page.to_string());
    }
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_text_is_escaped_and_not_expanded() {
        let shown = json!({ "name": "{{ shown.health }}<\"'&", "health": "serving" });
        let row = filled("row.html", &json!({ "shown": shown }));
        assert!(row.contains(">{{ shown.health }}&lt;&quot;&#x27;&amp;</bdi>"), "{row}");
    }

    #[test]
    fn link_contains_the_page_after_the_first() {
        let asked = Asked::of_link("search=a%26b");
        assert_eq!(link(&asked, Sort::default(), 1), "?sort=health&search=a%26b");
        assert_eq!(link(&asked, Sort::default(), 2), "?sort=health&search=a%26b&page=2");
    }

    #[test]
    fn locked_page_has_no_rows() {
        let page = locked();
        assert!(page.contains("data-access=\"locked\"") && !page.contains("{{"), "{page}");
        assert!(!page.split_once("<tbody").unwrap().1.split_once("</tbody>").unwrap().0.contains("<tr"));
    }
}
