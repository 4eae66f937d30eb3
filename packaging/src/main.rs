//! `rsunwind-pages DIRECTORY`: writes the man pages of the command and its subcommands, and what
//! shells complete it by, below a directory, laid out as below `/usr/share`.

use clap::CommandFactory;
use clap_complete::Shell;
use collector::cli::Cli;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Where each shell looks.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/vendor-completions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [directory] = &arguments[..] else {
        eprintln!("usage: rsunwind-pages DIRECTORY");
        return ExitCode::from(2);
    };
    match write(Path::new(directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "rsunwind-pages: {}: {error}",
                Path::new(directory).display()
            );
            ExitCode::FAILURE
        }
    }
}

fn write(share: &Path) -> io::Result<()> {
    let mut command = Cli::command();
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(command.clone(), &pages)?;
    for (shell, place) in SHELLS {
        let place = share.join(place);
        fs::create_dir_all(&place)?;
        clap_complete::generate_to(shell, &mut command, "rsunwind", &place)?;
    }
    // What bash-completion loads by is the command's name alone.
    let bash = share.join(SHELLS[0].1);
    fs::rename(bash.join("rsunwind.bash"), bash.join("rsunwind"))
}
