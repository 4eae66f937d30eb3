//! Reads recordings and prints the ten functions in which most CPU time was spent:
//!
//! ```sh
//! cargo run -p rsunwind-collector --example hottest -- profile.rsu
//! ```

use rsunwind_collector::profile::Profile;
use rsunwind_collector::symbolize::Places;
use std::collections::HashMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let profile = match Profile::open(&paths, &Places::default()) {
        Ok(profile) => profile,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut times: HashMap<&str, u64> = HashMap::new();
    for sample in profile.weighed() {
        // The innermost frame; its callers come behind it.
        if let Some(frame) = profile.walk(sample.stack).next() {
            let name = &profile.function(frame).name;
            *times.entry(name).or_default() += profile.time_ns(sample);
        }
    }
    let mut times: Vec<(&str, u64)> = times.into_iter().collect();
    times.sort_by_key(|&(name, ns)| (std::cmp::Reverse(ns), name));
    let whole = profile.whole().max(1) as f64;
    for (name, ns) in times.into_iter().take(10) {
        println!("{:5.1} %  {name}", ns as f64 * 100.0 / whole);
    }
    ExitCode::SUCCESS
}
