//! The pictures in `docs/guide/img`:
//! `IDMILL_SCREENSHOTS=$PWD/docs/guide/img cargo test -p idmill-server --test page -- --ignored`

use std::path::{Path, PathBuf};
use std::time::Duration;

use idmill::ErrorKind;
use idmill::store::{Bounds, Change, Store};
use idmill_testing::faulty::{Faults, FaultyStore};
use serde_json::json;
use tokio::time::sleep;

use crate::browser::Browser;
use crate::common::Running;
use crate::load::draws;

const I32: u64 = i32::MAX.unsigned_abs() as u64;

/// The name, the last id and the max of each sequence. None ends within 30 days at its rate.
const SEQUENCES: [(&str, u64, u64); 8] = [
    ("customers", 48_210, I32),
    ("events", 190_244_731, i64::MAX as u64),
    ("invoices", 88_120, 99_999_999),
    ("orders", 7_214_905, I32),
    ("payments", 6_998_114, I32),
    ("sessions", 481_220_417_033, i64::MAX as u64),
    ("shipments", 5_103_377, I32),
    ("support.tickets", 98_600, 99_999_999),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "draws the pictures of the documentation"]
async fn pictures() {
    let directory = std::env::var_os("IDMILL_SCREENSHOTS").map(PathBuf::from);
    let directory = directory.expect("IDMILL_SCREENSHOTS is the directory for the pictures");
    let latency = Faults::none().latency_between(Duration::from_micros(900), Duration::from_millis(7));
    let store = FaultyStore::with_faults(latency);
    for (name, last, max) in SEQUENCES {
        let name = name.parse().unwrap();
        store.create(&name, Bounds::new(1, max).unwrap()).await.unwrap();
        store.set(&name, Change::new().next(last + 1)).await.unwrap();
    }
    let server = Running::with(store.clone(), |server| {
        server.store_url("postgres://db1/shop").timeout(Duration::from_millis(300))
    })
    .await;
    let each = &[
        ("customers", 1),
        ("events", 96),
        ("invoices", 2),
        ("orders", 11),
        ("payments", 9),
        ("sessions", 260),
        ("shipments", 5),
        ("support.tickets", 1),
    ];
    let load = draws(server.resp, each);
    let browser = Browser::start().await;
    let metrics = json!({ "width": 1280, "height": 760, "deviceScaleFactor": 2, "mobile": false });
    browser.cdp("Emulation.setDeviceMetricsOverride", metrics).await;
    browser.cdp("Emulation.setScrollbarsHidden", json!({ "hidden": true })).await;
    browser.driver.goto(server.url("/")).await.unwrap();
    sleep(Duration::from_secs(45)).await;
    shoot(&browser, &directory, "page").await;
    // Let the store fail for one sequence, and let another end within the hour.
    store.fail_sequence("shipments", ErrorKind::Unavailable);
    let vouchers = "vouchers".parse().unwrap();
    store.create(&vouchers, Bounds::new(1, 99_999).unwrap()).await.unwrap();
    store.set(&vouchers, Change::new().next(98_001)).await.unwrap();
    let ending = draws(server.resp, &[("vouchers", 1)]);
    browser.until_cell("shipments", "health", "it !== 'serving'").await;
    browser.until_cell("vouchers", "health", "it !== 'serving'").await;
    shoot(&browser, &directory, "page-trouble").await;
    load.abort();
    ending.abort();
}

/// Writes a picture of the page in both colour schemes.
async fn shoot(browser: &Browser, directory: &Path, name: &str) {
    sleep(Duration::from_secs(1)).await;
    for scheme in ["light", "dark"] {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.cdp("Emulation.setEmulatedMedia", media).await;
        sleep(Duration::from_secs(2)).await;
        let picture = browser.driver.screenshot_as_png().await.unwrap();
        std::fs::write(directory.join(format!("{name}-{scheme}.png")), picture).unwrap();
    }
}
