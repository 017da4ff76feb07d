//! The command `idmill`, which knows `toy:PATH` too.

fn main() -> std::process::ExitCode {
    idmill_url::register(toy_store::SCHEMES).expect("nobody else has `toy:`");
    idmill_cli::main()
}
