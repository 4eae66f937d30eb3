//! What makes machines that compile code while a program runs give that code names and whole
//! stacks: what the summary recommends, and what `record --jit-names` sets.

/// Whole stacks in the JVM's code.
pub const JAVA_STACKS: &str = "-XX:+PreserveFramePointer";
/// Names of the JVM's code, as of version 17.
pub const JAVA_NAMES: &str = "-XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit";
/// Names of V8's code; it leaves files in the directory that the program is in, too, so nobody sets
/// it without the user.
pub const V8_NAMES: &str = "--perf-basic-prof";
/// Names of .NET's code.
pub const DOTNET_NAMES: &str = "DOTNET_PerfMapEnabled=1";

/// A variable that such a machine reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Whether it is a list of options, and the program's own ones follow; otherwise the program's
    /// value counts.
    pub is_list: bool,
}

/// Those that do the program no harm.
#[must_use]
pub fn variables() -> Vec<Variable> {
    let (dotnet, value) = DOTNET_NAMES.split_once('=').unwrap_or_default();
    let variable = |name, value, is_list| Variable {
        name,
        value,
        is_list,
    };
    // A JVM that does not know one of them would not start.
    let java = format!("-XX:+IgnoreUnrecognizedVMOptions {JAVA_STACKS} {JAVA_NAMES}");
    vec![
        variable("JAVA_TOOL_OPTIONS", java, true),
        variable(dotnet, value.to_owned(), false),
    ]
}
