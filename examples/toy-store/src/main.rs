//! The command `idmill`, with support for `toy:PATH`.

fn main() -> std::process::ExitCode {
    idmill_cli::main(toy_store::SCHEMES)
}
