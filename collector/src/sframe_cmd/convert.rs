//! `rsunwind sframe convert`: makes `.sframe` from `.eh_frame` and adds it to the program, or
//! writes it aside.

use std::io::Write;
use std::path::{Path, PathBuf};

use sframe::{Abi, Address, Conversion, Encoder, Version};

use super::Error;
use super::add_section::Image;
use super::program::{Program, Tables};

/// The arguments of `rsunwind sframe convert`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// An ELF program or shared library without .sframe
    file: PathBuf,
    /// Where to write the program with .sframe
    #[arg(short, long)]
    output: PathBuf,
    /// The version to write: 2, which has fewer ways to say where things are, or 3
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=3))]
    format: u8,
    /// Write the section alone, for the address at which it would be in the program
    #[arg(long)]
    section_only: bool,
    /// Store equal rows of several functions once, which makes the section smaller
    #[arg(long)]
    share_rows: bool,
}

/// Writes the output, and prints what was converted and what could not be.
pub(super) fn convert(arguments: &Arguments, out: &mut impl Write) -> Result<(), Error> {
    let program = Program::read(&arguments.file)?;
    let tables = program.tables()?;
    if tables.has_sframe() {
        return Err(program.unsuitable("it has .sframe already"));
    }
    let image = Image::parse(&program)?;
    let conversion = tables.eh_frame()?.convert();
    let encoder = encode(arguments, tables.abi()?, &tables, &conversion, out)?;
    let converted = encoder.function_count();
    let address = image.address_of_section();
    let encode_error = |source| Error::Encode {
        path: program.path.clone(),
        source,
    };
    let section = encoder.finish(address).map_err(encode_error)?;
    if arguments.section_only {
        write(&arguments.output, &section, None)?;
    } else {
        write(
            &arguments.output,
            &image.with_section(&section),
            Some(&program.path),
        )?;
    }
    let total = conversion.functions.len();
    writeln!(
        out,
        "{converted} of {total} functions converted; .sframe of {} bytes at {address}",
        section.len()
    )
    .map_err(Error::Output)
}

/// Collects what can be said, and prints what cannot.
fn encode(
    arguments: &Arguments,
    abi: Abi,
    tables: &Tables<'_>,
    conversion: &Conversion,
    out: &mut impl Write,
) -> Result<Encoder, Error> {
    let version = if arguments.format == 2 {
        Version::V2
    } else {
        Version::V3
    };
    let encode_error = |source| Error::Encode {
        path: arguments.file.clone(),
        source,
    };
    let mut encoder = Encoder::new(version, abi).map_err(encode_error)?;
    if arguments.share_rows {
        encoder = encoder.sharing_rows();
    }
    for function in &conversion.functions {
        let refused = match &function.rows {
            Ok(rows) => encoder.push(rows).err().map(|error| error.to_string()),
            Err(reason) => Some(reason.to_string()),
        };
        if let Some(reason) = refused {
            left_out(tables, function.start, &reason, out)?;
        }
    }
    for entry in &conversion.malformed {
        writeln!(out, "left out: an entry of .eh_frame: {entry}").map_err(Error::Output)?;
    }
    Ok(encoder)
}

fn left_out(
    tables: &Tables<'_>,
    start: Address,
    reason: &str,
    out: &mut impl Write,
) -> Result<(), Error> {
    writeln!(out, "left out: {}: {reason}", tables.place(start)).map_err(Error::Output)
}

/// Writes a file, with the permissions of `like`.
fn write(path: &Path, bytes: &[u8], like: Option<&Path>) -> Result<(), Error> {
    let error = |source| Error::Write {
        path: path.to_owned(),
        source,
    };
    std::fs::write(path, bytes).map_err(error)?;
    if let Some(like) = like {
        let permissions = std::fs::metadata(like).map_err(error)?.permissions();
        std::fs::set_permissions(path, permissions).map_err(error)?;
    }
    Ok(())
}
