//! Prints, for addresses in a program, how to get from a frame there to its caller.
//!
//! `cargo run -p sframe-unwind --example backtrace_row -- PROGRAM ADDRESS...`; addresses as in the
//! file, in hexadecimal.

use std::error::Error;

use object::{Object, ObjectSection};
use sframe_unwind::{Address, Section};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: backtrace_row PROGRAM ADDRESS...")?;
    let bytes = std::fs::read(&path)?;
    let file = object::File::parse(&*bytes)?;
    let table = file
        .section_by_name(".sframe")
        .ok_or("the program has no .sframe")?;
    let section = Section::new(table.data()?, Address(table.address()))?;
    for argument in arguments {
        let pc = Address(u64::from_str_radix(argument.trim_start_matches("0x"), 16)?);
        match section.lookup(pc)? {
            Some(row) if row.is_outermost() => println!("{pc}: has no caller"),
            Some(row) => println!(
                "{pc}: CFA {:?}, return address {:?}, frame pointer {:?}",
                row.cfa, row.ra, row.fp
            ),
            None => println!("{pc}: not in .sframe"),
        }
    }
    Ok(())
}
