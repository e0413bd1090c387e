//! mmb, with a function more.

fn main() -> std::process::ExitCode {
    let mut functions = mmb::registry();
    functions.add::<nf_hello::Hello>();
    mmb::run(functions)
}
