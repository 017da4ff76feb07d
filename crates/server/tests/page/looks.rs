//! Colours: all text is readable in both themes and in every state.

use std::time::Duration;

use idmill::ErrorKind;
use idmill::store::{Bounds, Store};
use idmill_testing::faulty::FaultyStore;
use serde_json::{Value, json};
use thirtyfour::Key;
use tokio::time::sleep;

use crate::browser::Browser;
use crate::common::Running;
use crate::load::draws;

/// Returns the number of checked parts, the texts with a contrast below 4.5, and the borders and lines below
/// 3.
const FAINT: &str = "(() => {
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
        .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = (one) => {
        for (let at = one; at; at = at.parentElement) {
            const colour = parts(getComputedStyle(at).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const contrast = (a, b) => { const [x, y] = [light(a), light(b)]; return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
    const faint = [];
    let looked = 0;
    const look = (one, colour, least) => {
        looked += 1;
        const found = contrast(parts(colour), behind(one));
        if (!(found >= least)) faint.push(`${one.outerHTML.slice(0, 60)}: ${colour} ${found.toFixed(2)}`);
    };
    for (const one of document.querySelectorAll('body *')) {
        if (!one.checkVisibility()) continue;
        const has = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (has) look(one, getComputedStyle(one).color, 4.5);
        for (const pseudo of ['::before', '::after']) {
            const style = getComputedStyle(one, pseudo);
            if (!['none', 'normal', '\"\"'].includes(style.content)) look(one, style.color, 4.5);
        }
        if (one.matches('input, select, button')) look(one.parentElement, getComputedStyle(one).borderTopColor, 3);
        if (one.matches('.spark path')) look(one, getComputedStyle(one).stroke, 3);
    }
    return [looked, faint];
})()";

async fn is_readable(browser: &Browser, what: &str) {
    // Backgrounds are animated, so wait until the animations have ended.
    browser.until("document.getAnimations().length === 0").await;
    let found = browser.value(FAINT).await;
    assert!(found[0].as_u64() > Some(8), "{what}: {found}");
    assert_eq!(found[1], Value::Array(Vec::new()), "{what}");
}

async fn paper(browser: &Browser) -> Value {
    browser.value("getComputedStyle(document.documentElement).backgroundColor").await
}

async fn system(browser: &Browser, scheme: &str) {
    let features = json!({ "features": [
        { "name": "prefers-color-scheme", "value": scheme }, { "name": "prefers-reduced-motion", "value": "reduce" }
    ] });
    browser.cdp("Emulation.setEmulatedMedia", features).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_readable_in_both_themes_and_every_state() {
    let store = FaultyStore::new();
    for (name, max) in [("fine", u64::MAX), ("empty", u64::MAX), ("failing", u64::MAX), ("ended", 3)] {
        store.create(&name.parse().unwrap(), Bounds::new(1, max).unwrap()).await.unwrap();
    }
    let server = Running::with(store.clone(), |server| server.timeout(Duration::from_millis(200))).await;
    let mut client = server.client().await;
    // Draw at a high rate: the server then keeps enough ids in memory for the loop below.
    for _ in 0..20 {
        client.until_drawn("INCRBY failing 1000").await;
        sleep(Duration::from_millis(100)).await;
    }
    for name in ["fine", "empty", "ended"] {
        client.until_drawn(&format!("INCR {name}")).await;
    }
    for name in ["empty", "failing"] {
        store.fail_sequence(name, ErrorKind::Unavailable);
    }
    let load = draws(server.resp, &[("fine", 1), ("empty", 10), ("ended", 1)]);
    let browser = Browser::start().await;
    system(&browser, "light").await;
    browser.driver.goto(server.url("/")).await.unwrap();
    while browser.cell("failing", "health").await != "failing" {
        client.ask("INCRBY failing 100").await;
        assert_ne!(browser.cell("failing", "health").await, "empty", "memory was too small for this");
    }
    for (name, health) in [("fine", "serving"), ("empty", "empty"), ("ended", "ended")] {
        browser.until_cell(name, "health", &format!("it === {}", json!(health))).await;
    }
    is_readable(&browser, "light").await;
    let light = paper(&browser).await;
    system(&browser, "dark").await;
    let dark = paper(&browser).await;
    assert_ne!(light, dark);
    is_readable(&browser, "dark").await;
    // The switch overrides the system's theme, and is stored.
    browser.tab_to("#theme").await;
    browser.press("light").await;
    browser.until("document.documentElement.dataset.theme === 'light'").await;
    browser.driver.refresh().await.unwrap();
    assert_eq!(
        (paper(&browser).await, browser.value("document.getElementById('theme').value").await),
        (light, json!("light"))
    );
    browser.tab_to("#theme").await;
    browser.press(Key::Up + "").await;
    browser.until("!document.documentElement.dataset.theme && localStorage.length === 0").await;
    assert_eq!(paper(&browser).await, dark);
    browser.until("document.body.dataset.link === 'live'").await;
    browser.is_clean().await;
    load.abort();
    drop(client);
    server.end().await.unwrap();
    browser.until("document.body.dataset.link === 'lost'").await;
    is_readable(&browser, "dark, and lost").await;
    system(&browser, "light").await;
    is_readable(&browser, "light, and lost").await;
    assert_eq!(browser.value("document.querySelectorAll('#rows tr').length").await, json!(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn token_form_is_readable_in_both_themes() {
    let server =
        Running::with(FaultyStore::new(), |server| server.access(idmill_server::Access::by([]))).await;
    let browser = Browser::at(&server.url("/")).await;
    browser.until("document.activeElement.id === 'token'").await;
    browser.press("wrong" + Key::Enter).await;
    browser.until("document.getElementById('token-error').textContent !== ''").await;
    for scheme in ["light", "dark"] {
        system(&browser, scheme).await;
        is_readable(&browser, scheme).await;
    }
}
