//! The benchmark of the hot path, as a program outside the library's workspace.

#[path = "../../hot_path.rs"]
mod hot_path;

fn main() {
    hot_path::main();
}
