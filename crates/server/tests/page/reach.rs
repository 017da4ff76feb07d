//! Accessibility: keyboard only, without scripts, narrow, enlarged, and with a screen reader.

use std::time::Duration;

use idmill_server::{Access, Pattern, Rights, Secret, Token};
use idmill_testing::faulty::FaultyStore;
use serde_json::{Value, json};
use thirtyfour::Key;
use tokio::time::sleep;

use crate::browser::Browser;
use crate::common::Running;

async fn with_many() -> Running {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    for at in 0..120 {
        client.id(&format!("INCRBY s{at:03} {}", 500 + at)).await;
    }
    // Wait for the next snapshot, which is taken once a second.
    for _ in 0..600 {
        let page = reqwest::get(server.url("/")).await.unwrap().text().await.unwrap();
        if page.contains("of 120 open sequences") {
            return server;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("the page does not show all sequences");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_usable_with_only_a_keyboard() {
    let server = with_many().await;
    let browser = Browser::at(&server.url("/")).await;
    browser.until("document.querySelectorAll('#rows tr').length === 50").await;
    let mut way = Vec::new();
    for _ in 0..20 {
        browser.press(Key::Tab + "").await;
        let here = "((one) => [one.id || one.dataset.sort || one.textContent.trim(),
            getComputedStyle(one).outlineStyle !== 'none' && parseFloat(getComputedStyle(one).outlineWidth) >= 2])(document.activeElement)";
        let here = browser.value(here).await;
        assert_eq!(here[1], json!(true), "{here}: the focus cannot be seen");
        way.push(here[0].as_str().unwrap().to_owned());
        if here[0] == "next" {
            break;
        }
    }
    let expected = [
        "Skip to the sequences",
        "theme",
        "search",
        "sequences",
        "name",
        "health",
        "last",
        "rate",
        "stock",
        "empty",
        "waiting",
        "latency",
        "gaps",
        "used",
        "exhausted",
        "next",
    ];
    assert_eq!(way, expected);
    browser.press(Key::Enter + "").await;
    browser.until("document.getElementById('pages').textContent === 'Page 2 of 3'").await;
    browser.driver.execute("document.querySelector('[data-sort=last]').focus()", Vec::new()).await.unwrap();
    browser.press(Key::Enter + "").await;
    browser.until("document.querySelector('#rows [data-cell=name]').textContent === 's119'").await;
    let sorted = "document.querySelector('[data-sort=last]').closest('th').ariaSort";
    assert_eq!(browser.value(sorted).await, json!("descending"));
    assert_eq!(browser.value("document.activeElement.dataset.sort").await, json!("last"));
    browser.press(Key::Enter + "").await;
    browser.until("document.querySelector('#rows [data-cell=name]').textContent === 's000'").await;
    browser.driver.execute("document.getElementById('search').focus()", Vec::new()).await.unwrap();
    browser.press("S11").await;
    browser.until("document.querySelectorAll('#rows tr').length === 10").await;
    browser.until("document.getElementById('news').textContent.includes('10 open sequences')").await;
    // The URL opens the same view.
    browser.driver.refresh().await.unwrap();
    browser.until("document.querySelectorAll('#rows tr').length === 10").await;
    assert_eq!(browser.value("document.getElementById('search').value").await, json!("S11"));
    browser.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_without_scripts_shows_the_table_or_advice() {
    let server = with_many().await;
    let secret = Secret::fresh().unwrap();
    let access = Access::by([Token::new("t", secret.hash(), Rights::ALL, vec![Pattern::any()])]);
    let locked = Running::with(FaultyStore::new(), |server| server.access(access)).await;
    let browser = Browser::start().await;
    browser.cdp("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    browser.driver.goto(server.url("/?search=s11&sort=-last")).await.unwrap();
    assert_eq!(browser.value("typeof wish").await, json!("undefined"), "its script ran");
    let rows = "[...document.querySelectorAll('#rows tr')].map((row) => row.querySelector('[data-cell=last]').innerText)";
    assert_eq!(browser.value(rows).await[0], json!("619"));
    assert_eq!(browser.text("#summary").await, "10 open sequences whose name contains “s11”");
    browser.driver.goto(server.url("/")).await.unwrap();
    browser.driver.find(thirtyfour::By::Id("next")).await.unwrap().click().await.unwrap();
    browser.until("document.getElementById('pages').textContent === 'Page 2 of 3'").await;
    browser.driver.goto(locked.url("/")).await.unwrap();
    let said = browser.text("main").await;
    assert!(said.contains("A token is required") && said.contains("Authorization: Bearer TOKEN"), "{said}");
    assert_eq!(browser.value("document.getElementById('token').checkVisibility()").await, json!(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn narrow_page_fits_and_stays_an_accessible_table() {
    let server = with_many().await;
    let browser = Browser::start().await;
    // Three windows: a small phone, 1280 pixels at a zoom of 200 %, and 1280 pixels.
    for (width, scale) in [(320, 1), (640, 2), (1280, 1)] {
        let metrics = json!({ "width": width, "height": 800, "deviceScaleFactor": scale, "mobile": false });
        browser.cdp("Emulation.setDeviceMetricsOverride", metrics).await;
        browser.driver.goto(server.url("/")).await.unwrap();
        browser.until("document.body.dataset.link === 'live'").await;
        let beyond = "[...document.querySelectorAll('body *')].filter((one) => one.checkVisibility() && !one.closest('.skip, thead, .unseen, pre')
            && one.getBoundingClientRect().right > innerWidth + 0.5).map((one) => one.outerHTML.slice(0, 80))";
        assert_eq!(browser.value(beyond).await, json!([]), "at {width}");
        assert_eq!(
            browser.value("document.documentElement.scrollWidth <= innerWidth").await,
            json!(true),
            "at {width}"
        );
        browser.cdp("Accessibility.enable", json!({})).await;
        let heard = browser.cdp("Accessibility.getFullAXTree", json!({})).await;
        let count = |role: &str| {
            let nodes = heard["nodes"].as_array().unwrap().iter();
            nodes
                .filter(|node| node["ignored"] == json!(false) && node["role"]["value"] == json!(role))
                .count()
        };
        assert_eq!((count("table"), count("rowheader"), count("cell")), (1, 50, 500), "at {width}");
        assert_eq!(count("columnheader"), 11, "at {width}");
    }
    let unnamed = "[...document.querySelectorAll('input, select, button, a, table, [role=region], nav')]
        .filter((one) => one.checkVisibility() && !one.computedName && !(one.labels?.length || one.textContent.trim() || one.ariaLabel || one.getAttribute('aria-labelledby')))
        .map((one) => one.outerHTML.slice(0, 80))";
    assert_eq!(browser.value(unnamed).await, Value::Array(Vec::new()));
    browser.is_clean().await;
}
