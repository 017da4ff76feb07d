//! The page for operators, in a real browser. `ci/steps/page` installs the browser and runs these tests.

mod browser;
#[allow(dead_code)] // each of the two targets uses some of it
#[path = "../server/common.rs"]
mod common;
mod connection;
mod load;
mod looks;
mod pictures;
mod reach;
mod rows;
mod tokens;
