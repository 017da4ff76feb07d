//! The content of the table.

use std::time::Duration;

use idmill::store::{Bounds, Store};
use idmill_testing::faulty::{Faults, FaultyStore};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::common::{Running, with_orders};
use crate::load::draws;

const HOSTILE: &str = "<img src=x onerror=window.hit=1>\"'{{rows}}";

#[tokio::test(flavor = "multi_thread")]
async fn table_is_updated_while_ids_are_drawn() {
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_millis(2)));
    store.create(&"orders".parse().unwrap(), Bounds::new(1, 1_000_000).unwrap()).await.unwrap();
    let server = Running::with(store, |server| server.store_url("postgres://app:secret@db1/shop")).await;
    let load = draws(server.resp, &[("orders", 7), ("users", 1)]);
    let browser = Browser::at(&server.url("/")).await;
    browser.until_cell("orders", "last", "Number(it.replaceAll(',', '')) > 100").await;
    let before = browser.cell("orders", "last").await;
    browser.until_cell("orders", "last", &format!("it !== {}", json!(before))).await;
    browser.until_cell("orders", "rate", "Number(it.replaceAll(',', '')) > 1").await;
    browser.until_cell("orders", "exhausted", r"/^20\d\d-\d\d-\d\d$/.test(it)").await;
    browser.until_cell("orders", "p50", r"/^\d.* ms$/.test(it)").await;
    browser.until_cell("orders", "used", r"/^[\d.]+ %$/.test(it)").await;
    browser.until_cell("users", "exhausted", "it === 'after 9999'").await;
    // Wait until each line has several points.
    let lines = "[...document.querySelectorAll('.spark path')].every((line) => /^M[^M]+(L[^L]+){2,}$/.test(line.getAttribute('d')))";
    browser.until(lines).await;
    browser.until("document.querySelector('[data-field=state]').textContent === 'Ready'").await;
    let store = browser.text("[data-field=store]").await;
    assert!(store.contains("db1/shop") && !store.contains("secret"), "{store}");
    // Figures change each second, but the announcements must not.
    for times in 1.. {
        let aloud = read_aloud(&browser).await;
        if aloud == json!([]) {
            break;
        }
        // On a slow machine there may be an announcement during some updates, but not during all.
        assert!(times < 5, "{aloud}");
    }
    browser.is_clean().await;
    load.abort();
}

/// Returns the announcements during three updates.
async fn read_aloud(browser: &Browser) -> Value {
    let aloud = "window.aloud = []; for (const one of document.querySelectorAll('[aria-live], [role=alert]'))
        new MutationObserver(() => aloud.push(one.textContent)).observe(one, { childList: true, subtree: true, characterData: true });";
    browser.driver.execute(aloud, Vec::new()).await.unwrap();
    for _ in 0..3 {
        let now = browser.text("[data-field=at]").await;
        browser
            .until(&format!("document.querySelector('[data-field=at]').textContent !== {}", json!(now)))
            .await;
    }
    browser.value("aloud").await
}

#[tokio::test(flavor = "multi_thread")]
async fn store_outage_and_recovery_are_shown_with_the_reason() {
    let store = with_orders().await;
    let server = Running::with(store.clone(), |server| server.timeout(Duration::from_secs(1))).await;
    // The first client may take the last ids in memory, and wait for more. When this client gives up, its ids
    // return to memory. Until the second client has drawn these ids, the sequence is `failing`, so wait for
    // each text.
    let loads = [&[("orders", 50)], &[("orders", 1)]].map(|each| draws(server.resp, each));
    let browser = Browser::at(&server.url("/")).await;
    browser.until_cell("orders", "health", "it === 'serving'").await;
    store.set_faults(Faults::outage());
    browser.until_cell("orders", "health", "it === 'empty'").await;
    browser.until_cell("orders", "reason", "it.includes('failed')").await;
    browser.until("document.querySelector('[data-field=state]').textContent === 'Not ready'").await;
    let reason =
        "the store grants no ids, and the ids in memory are used up or running out; orders has no ids";
    browser
        .until(&format!("document.querySelector('[data-field=reason]').textContent === {}", json!(reason)))
        .await;
    browser.until("document.getElementById('news').textContent.includes('orders is empty')").await;
    browser.until_cell("orders", "since", r"/^since \d\d:\d\d:\d\d UTC, /.test(it)").await;
    browser.until_cell("orders", "failing", r"/^[\d.]+ fail$/.test(it)").await;
    // The title identifies the tab, and the name identifies the server.
    let name = browser.text("[data-field=name]").await;
    assert!(name.ends_with(&format!(":{}", server.http.port())), "{name}");
    let title = format!("■ Not ready, 1 in trouble – {name} – idmill");
    browser.until(&format!("document.title === {}", json!(title))).await;
    // The state is shown by a sign and a word, not only by colour.
    let sign = "getComputedStyle(document.querySelector('#rows tr .mark'), '::before').content";
    browser.until(&format!("{sign} === '\"■\"'")).await;
    store.set_faults(Faults::none());
    browser.until_cell("orders", "health", "it === 'serving'").await;
    browser.until("document.querySelector('[data-field=state]').textContent === 'Ready'").await;
    browser.until_cell("orders", "reason", "it === ''").await;
    browser.until_cell("orders", "since", "it === ''").await;
    browser.until(&format!("document.title === {}", json!(format!("{name} – idmill")))).await;
    browser.is_clean().await;
    loads.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn sequence_near_its_end_and_exhausted_is_shown() {
    let store = FaultyStore::new();
    store.create(&"short".parse().unwrap(), Bounds::new(1, 3000).unwrap()).await.unwrap();
    let server = Running::over(store).await;
    let mut client = server.client().await;
    assert_eq!(client.id("INCRBY short 2990").await, 2990);
    let browser = Browser::at(&server.url("/")).await;
    browser.until_cell("short", "last", "it === '2,990'").await;
    browser.until_cell("short", "used", "parseFloat(it) > 99").await;
    client.until_refused("INCR short").await;
    browser.until_cell("short", "health", "it === 'ended'").await;
    browser.until_cell("short", "last", "it === '3,000'").await;
    browser.until_cell("short", "reason", "/exhausted|end/i.test(it)").await;
    browser.until_cell("short", "used", "it === '100 %'").await;
    browser.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn script_renders_names_as_text() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    client.send(format!("*2\r\n$4\r\nINCR\r\n${}\r\n{HOSTILE}\r\n", HOSTILE.len())).await;
    assert_eq!(client.line().await, ":1");
    let url = reqwest::Url::parse_with_params(&server.url("/"), [("search", "<img")]).unwrap();
    let browser = Browser::at(url.as_str()).await;
    browser.until_cell(HOSTILE, "last", "it === '1'").await;
    browser.until("document.body.dataset.link === 'live'").await;
    // Check again after the script has rendered the row.
    browser.driver.execute("document.getElementById('rows').replaceChildren()", Vec::new()).await.unwrap();
    browser.until_cell(HOSTILE, "last", "it === '1'").await;
    assert!(browser.text("#summary").await.contains("“<img”"));
    assert_eq!(
        browser.value("[document.querySelectorAll('img').length, window.hit ?? null]").await,
        json!([0, null])
    );
    // The content security policy forbids turning text into markup.
    let markup = "(() => { try { document.body.innerHTML = '<b>'; return 'made'; } catch (error) { return error.name; } })()";
    assert_eq!(browser.value(markup).await, json!("TypeError"));
}

/// Without escapes, the name would be shown as `orders.exe`, like another name.
#[tokio::test(flavor = "multi_thread")]
async fn invisible_characters_in_names_are_escaped() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    let name = "orders.\u{202e}exe\u{200b}";
    client.send(format!("*2\r\n$4\r\nINCR\r\n${}\r\n{name}\r\n", name.len())).await;
    assert_eq!(client.line().await, ":1");
    let browser = Browser::at(&server.url("/")).await;
    browser.until_cell(r"orders.\u{202e}exe\u{200b}", "last", "it === '1'").await;
    browser.until("document.body.dataset.link === 'live'").await;
    let unseen = r"/[\u202a-\u202e\u2066-\u2069\u200b]/.test(document.documentElement.outerHTML)";
    assert_eq!(browser.value(unseen).await, json!(false));
    browser.is_clean().await;
}
