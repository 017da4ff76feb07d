//! The command `idmill`, which knows `toy:PATH` too.

fn main() -> std::process::ExitCode {
    idmill_cli::main(toy_store::SCHEMES)
}
