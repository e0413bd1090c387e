//! mmb, with a function more.

fn main() -> std::process::ExitCode {
    let mut functions = mmb::registry();
    functions.add::<nf_hello::Hello>();
    functions.add_stream::<nf_hello::streams::Sum>().add_stream::<nf_hello::streams::Word>();
    mmb::run(functions)
}
