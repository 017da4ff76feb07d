//! A headless browser, driven over WebDriver.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::common::log::LoggingPrefsLogLevel;
use thirtyfour::prelude::*;
use thirtyfour::{ChromiumLikeCapabilities, Key};
use tokio::time::sleep;

/// Flags for a headless browser that contacts no other hosts.
const FLAGS: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// Runs in each page before its own scripts. Records policy violations and the delays of timers.
const WATCH: &str = "
    window.forbidden = [];
    document.addEventListener('securitypolicyviolation', (event) =>
        forbidden.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
    window.pauses = [];
    const later = window.setTimeout;
    window.setTimeout = (what, time, ...more) => { pauses.push(time); return later(what, time, ...more); };";

/// Number of attempts, a tenth of a second apart, before a wait fails.
const TRIES: usize = 900;

pub(crate) struct Browser {
    pub(crate) driver: WebDriver,
    _process: Process,
    _profile: TempDir,
}

/// The WebDriver process. A drop also kills the browser that the process started.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}

impl Browser {
    pub(crate) async fn start() -> Self {
        let (process, port) = chromedriver();
        let profile = tempfile::tempdir().unwrap();
        let mut wanted = DesiredCapabilities::chrome();
        for flag in FLAGS {
            wanted.add_arg(flag).unwrap();
        }
        wanted.add_arg("--window-size=1360,900").unwrap();
        wanted.add_arg(&format!("--user-data-dir={}", profile.path().display())).unwrap();
        wanted.set_browser_log_level(LoggingPrefsLogLevel::All).unwrap();
        let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), wanted).await.unwrap();
        let browser = Self { driver, _process: process, _profile: profile };
        browser.cdp("Page.addScriptToEvaluateOnNewDocument", json!({ "source": WATCH })).await;
        browser
    }

    pub(crate) async fn at(url: &str) -> Self {
        let browser = Self::start().await;
        browser.driver.goto(url).await.unwrap();
        browser
    }

    /// Sends a command of the Chrome DevTools Protocol, for what WebDriver cannot do.
    pub(crate) async fn cdp(&self, method: &str, parameters: Value) -> Value {
        self.driver.cdp().send_raw(method, parameters).await.unwrap()
    }

    /// Returns the value of an expression in the page.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        let value = self.driver.execute(format!("return ({expression});"), Vec::new()).await;
        value.unwrap_or_else(|error| panic!("{expression}: {error}")).json().clone()
    }

    pub(crate) async fn text(&self, selector: &str) -> String {
        let text = self.value(&format!("document.querySelector({})?.innerText ?? ''", json!(selector))).await;
        text.as_str().unwrap().to_owned()
    }

    /// Returns the text of a cell; empty if there is no such row.
    pub(crate) async fn cell(&self, name: &str, cell: &str) -> String {
        self.value(&cell_of(name, cell)).await.as_str().unwrap().to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&self, expression: &str) {
        for _ in 0..TRIES {
            if self.value(&format!("Boolean({expression})")).await == json!(true) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        let shown = self.value("document.body.innerText").await;
        panic!("never came: {expression}\nthe page shows: {shown}");
    }

    /// Waits until an expression is true, in which `it` is the text of the cell.
    pub(crate) async fn until_cell(&self, name: &str, cell: &str, expression: &str) {
        self.until(&format!("((it) => {expression})({})", cell_of(name, cell))).await;
    }

    /// Presses keys on the focused element.
    pub(crate) async fn press(&self, keys: impl Into<thirtyfour::TypingData>) {
        self.driver.action_chain().send_keys(keys).perform().await.unwrap();
    }

    /// Presses Tab until the focus is on a matching element. Returns how often.
    pub(crate) async fn tab_to(&self, selector: &str) -> usize {
        for times in 0..40 {
            let here = format!("document.activeElement.matches({})", json!(selector));
            if self.value(&here).await == json!(true) {
                return times;
            }
            self.press(Key::Tab + "").await;
        }
        panic!("no way to {selector} by keyboard");
    }

    /// Asserts that the page made no foreign request, violated no policy and logged no error.
    pub(crate) async fn is_clean(&self) {
        let foreign = "performance.getEntries().map((one) => one.name)
            .filter((name) => /^[a-z]+:/.test(name) && !name.startsWith(location.origin + '/'))";
        assert_eq!(self.value(foreign).await, json!([]), "the page requested a foreign resource");
        assert_eq!(self.value("forbidden").await, json!([]), "the page violated its policy");
        let log = self.driver.browser_log().await.unwrap();
        // The browser also logs failed requests, which the page reports itself.
        let broken: Vec<_> = log
            .iter()
            .filter(|line| line.level == "SEVERE" && line.source.as_deref() != Some("network"))
            .collect();
        assert!(broken.is_empty(), "{broken:?}");
    }
}

fn cell_of(name: &str, cell: &str) -> String {
    format!(
        "([...document.querySelectorAll('#rows tr')]
            .find((row) => row.querySelector('[data-cell=\"name\"]').textContent === {})
            ?.querySelector('[data-cell={cell}]').textContent ?? '')",
        json!(name)
    )
}

/// Starts the driver, and returns the port that it chose.
fn chromedriver() -> (Process, u16) {
    let started = Command::new("chromedriver")
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = started.unwrap_or_else(|error| {
        panic!("chromedriver: {error}; install Chromium with its driver (apt-get install chromium chromium-driver)")
    });
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        line.split_once("started successfully on port ")?.1.trim_end_matches('.').parse().ok()
    });
    // Continue to read, because the driver would block on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (Process(child), port.expect("chromedriver names its port"))
}
