//! Prints the public items of a rustdoc JSON file, without blanket, auto trait and derived implementations.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: public-items FILE.json")?;
    let items = public_api::Builder::from_rustdoc_json(file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    for item in items.items() {
        println!("{item}");
    }
    Ok(())
}
