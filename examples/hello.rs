//! Greets, with its arguments.

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    println!("{}", ["hello from rust".to_owned(), words.join(" ")].join(" ").trim_end());
}
