//! A server that requires a token.

use idmill_server::{Access, Pattern, Right, Rights, Secret, Token};
use idmill_testing::faulty::FaultyStore;
use serde_json::json;
use thirtyfour::Key;

use crate::browser::Browser;
use crate::common::Running;

fn token(secret: &Secret, rights: Rights) -> Token {
    Token::new("t", secret.hash(), rights, vec![Pattern::any()])
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_stored_only_in_the_tab() {
    let (operator, shop) = (Secret::fresh().unwrap(), Secret::fresh().unwrap());
    let access =
        Access::by([token(&operator, Rights::ALL), token(&shop, [Right::Draw].into_iter().collect())]);
    let server = Running::with(FaultyStore::new(), |server| server.access(access.clone())).await;
    let mut client = server.client().await;
    assert_eq!(client.ask(&format!("AUTH {}", operator.reveal())).await, "+OK");
    assert_eq!(client.id("INCR orders").await, 1);
    let browser = Browser::at(&server.url("/")).await;
    // The field has the focus, so that the page is usable with only a keyboard.
    browser.until("document.activeElement.id === 'token'").await;
    assert_eq!(browser.value("document.body.innerText.includes('orders')").await, json!(false));
    for (secret, told) in [("wrong", "token is unknown"), (shop.reveal(), "lacks the right `observe`")] {
        browser.press(secret).await;
        browser.press(Key::Enter + "").await;
        browser
            .until(&format!("document.getElementById('token-error').textContent.includes({})", json!(told)))
            .await;
        assert_eq!(browser.value("sessionStorage.length").await, json!(0), "a rejected token is not stored");
    }
    browser.press(operator.reveal()).await;
    browser.press(Key::Enter + "").await;
    browser.until_cell("orders", "last", "it === '1'").await;
    let kept =
        browser.value("[sessionStorage.getItem('idmill.token'), localStorage.length, document.cookie]").await;
    assert_eq!(kept, json!([operator.reveal(), 0, ""]));
    let urls =
        browser.value("[location.href, ...performance.getEntries().map((one) => one.name)].join()").await;
    assert!(!urls.as_str().unwrap().contains(operator.reveal()), "{urls}");
    assert!(!browser.driver.source().await.unwrap().contains(operator.reveal()));
    // The token is stored for the tab until the user removes it.
    browser.driver.refresh().await.unwrap();
    browser.until_cell("orders", "last", "it === '1'").await;
    browser.is_clean().await;
    access.replace([token(&shop, Rights::ALL)]);
    browser.until("document.getElementById('token-error').textContent.includes('removed')").await;
    assert_eq!(
        browser.value("[document.querySelectorAll('#rows tr').length, sessionStorage.length]").await,
        json!([0, 0])
    );
    browser.press(shop.reveal()).await;
    browser.press(Key::Enter + "").await;
    browser.until_cell("orders", "last", "it === '1'").await;
    browser.tab_to("#forget").await;
    browser.press(Key::Enter + "").await;
    browser.until("document.body.dataset.access === 'locked' && sessionStorage.length === 0").await;
}

/// The token is valid, so the page must not ask for another.
#[tokio::test(flavor = "multi_thread")]
async fn connection_limit_is_shown_without_a_token_form() {
    let secret = Secret::fresh().unwrap();
    let mut only = token(&secret, Rights::ALL);
    only.max_connections = Some(1);
    let access = Access::by([only]);
    let server = Running::with(FaultyStore::new(), |server| server.access(access)).await;
    let mut client = server.client().await;
    assert_eq!(client.ask(&format!("AUTH {}", secret.reveal())).await, "+OK");
    let browser = Browser::at(&server.url("/?utm_source=x&sort=nothing")).await;
    browser.until("document.activeElement.id === 'token'").await;
    browser.press(secret.reveal()).await;
    browser.press(Key::Enter + "").await;
    browser
        .until("document.getElementById('link').textContent.includes('the token allows 1 connections')")
        .await;
    let shown = browser.text("main").await;
    assert!(
        shown.contains("temporarily rejects this token") && !shown.contains("A token is required"),
        "{shown}"
    );
    // The page retries without user action.
    drop(client);
    browser.until("document.body.dataset.link === 'live' && document.body.dataset.access === 'open'").await;
    assert_eq!(browser.text("#link").await, "");
}
