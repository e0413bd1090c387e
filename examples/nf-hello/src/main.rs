//! mmb, with a function more.

fn main() -> std::process::ExitCode {
    let mut functions = mmb::Registry::builtin();
    functions.add::<nf_hello::Hello>();
    mmb::run(functions)
}
