//! The command `idmill`.

fn main() -> std::process::ExitCode {
    idmill_cli::main(&[])
}
