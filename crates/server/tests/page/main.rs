//! The page for operators, in a real browser. `ci/steps/page` installs the browser and runs these tests.

mod browser;
#[allow(dead_code)] // each test target uses only a part of this module
#[path = "../server/common.rs"]
mod common;
mod connection;
mod load;
mod looks;
mod pictures;
mod reach;
mod rows;
mod tokens;
