//! The command `idmill`, which knows `toy:PATH` too.

fn main() -> std::process::ExitCode {
    toy_store::register().expect("nobody else has `toy:`");
    idmill_cli::main()
}
