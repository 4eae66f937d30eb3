//! Where the fields of V8's objects are. V8 exports many offsets and all type numbers for debuggers
//! (`v8dbg_…`); the others are those of the three versions that are known.

use super::bytecodes::{self, Lengths};
use core::ffi::CStr;

/// A version that is not known: major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown(pub u32, pub u32);

/// The number of each type of objects that is told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types {
    /// The first of functions; classes and constructors of the language have the next.
    pub function: u32,
    /// Of what functions of one place in the source share.
    pub shared: u32,
    /// Of scripts.
    pub script: u32,
    /// Of `ScopeInfo`s.
    pub scope: u32,
    /// Of arrays of bytecodes.
    pub bytecodes: u32,
}

/// Where the part of a `ScopeInfo` is that says where the function is in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// There.
    At(u64),
    /// Behind the names of variables, and what flags say.
    BehindNames,
}

/// Of the code that the baseline compiler made of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// The number of the type of `Code`.
    pub code: u32,
    /// Of a `Code`: the bytecodes that it was made of, or what leads to them.
    pub bytecodes: u64,
    /// Of a `Code`: how many bytes each bytecode came to.
    pub table: u64,
    /// Of a `Code`: the word with the number of its compiler in the lowest four bits.
    pub flags: u64,
    /// That number.
    pub compiler: u32,
    /// Of a `Code`: bytes of its instructions.
    pub size: u64,
    /// How long bytecodes are.
    pub lengths: Lengths,
}

/// How far in front of its first instruction code has these, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeforeCode {
    /// The map of the object that the instructions are in.
    pub map: u64,
    /// The pointer to the `Code`.
    pub code: u64,
}

/// Offsets, bytes, from the beginnings of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Which object is what.
    pub types: Types,
    /// Of a `JSFunction`: its `SharedFunctionInfo`.
    pub function_shared: u64,
    /// Of a `SharedFunctionInfo`: its name, or the `ScopeInfo` that has it.
    pub shared_name: u64,
    /// Of a `SharedFunctionInfo`: its script, if it has one.
    pub shared_script: u64,
    /// Of a `ScopeInfo`: where the function is in the source.
    pub positions: Positions,
    /// Of a `ScopeInfo`: the names of variables.
    pub scope_names: u64,
    /// Of a `BytecodeArray`: its source positions.
    pub bytecode_positions: u64,
    /// Of a `BytecodeArray`: its instructions.
    pub bytecode_data: u64,
    /// Of what the baseline compiler makes.
    pub baseline: Baseline,
    /// Of what any compiler makes.
    pub before_code: BeforeCode,
    /// Of what optimised code has instead of bytecodes: the positions of functions that were made
    /// part of it.
    pub inlined: u64,
    /// Whether what leads back to bytecodes from code of Maglev's is known.
    pub knows_maglev: bool,
    /// Of the same: the `SharedFunctionInfo` that it was made of, or what leads to that.
    pub compiled_of: u64,
    /// Of the same: its number. What is optimised later has a higher one.
    pub compiled_number: u64,
    /// What frames of a regular expression's code have where those of functions have their context.
    pub expression: u64,
}

/// The layout of the objects of a V8 that exports such constants.
///
/// # Errors
/// The version, if it is not known.
pub fn of(constant: impl Fn(&CStr) -> Option<u32>) -> Result<Layout, Unknown> {
    let version = |name| constant(name).unwrap_or(0);
    let major = version(c"_ZN2v88internal7Version6major_E");
    let minor = version(c"_ZN2v88internal7Version6minor_E");
    told(major, minor, constant).ok_or(Unknown(major, minor))
}

fn told(major: u32, minor: u32, constant: impl Fn(&CStr) -> Option<u32>) -> Option<Layout> {
    let offset = |name| constant(name).map(u64::from).filter(is_likely);
    // Without tags of 32 bits and compressed pointers.
    if constant(c"v8dbg_SmiValueShift")?.checked_add(constant(c"v8dbg_SmiShiftSize")?)? != 32 {
        return None;
    }
    let (name, script, bytecode_positions, baseline, before_code) = match (major, minor) {
        (11, 3) => (
            c"v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object",
            c"v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject",
            32,
            (16, 24, 48, 56, bytecodes::V8_11_3),
            (16, 8),
        ),
        (12, 4) => (
            c"v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_",
            c"v8dbg_class_SharedFunctionInfo__script__Tagged_HeapObject_",
            24,
            (8, 16, 48, 52, bytecodes::V8_12_4),
            (32, 24),
        ),
        (13, 6) => (
            c"v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_",
            c"v8dbg_class_SharedFunctionInfo__script__Tagged_HeapObject_",
            24,
            (8, 16, 52, 56, bytecodes::V8_13_6),
            (32, 24),
        ),
        _ => return None,
    };
    /// Of the first field of a `ScopeInfo`, by which they are counted.
    const FIRST: u64 = 8;
    let field = |index: u64| FIRST.checked_add(index.checked_mul(8)?);
    let inlined = constant(c"v8dbg_DeoptimizationDataInliningPositionsIndex")?;
    let compiled_of = constant(c"v8dbg_DeoptimizationDataSharedFunctionInfoIndex")
        .or_else(|| constant(c"v8dbg_DeoptimizationDataWrappedSharedFunctionInfoIndex"))?;
    let compiled_number = constant(c"v8dbg_DeoptimizationDataOptimizationIdIndex")?;
    let first_name = offset(c"v8dbg_scopeinfo_idx_first_vars")?;
    Some(Layout {
        types: Types {
            function: constant(c"v8dbg_type_JSFunction__JS_FUNCTION_TYPE")?,
            shared: constant(c"v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE")?,
            script: constant(c"v8dbg_type_Script__SCRIPT_TYPE")?,
            scope: constant(c"v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE")?,
            bytecodes: constant(c"v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE")?,
        },
        function_shared: offset(c"v8dbg_class_JSFunction__shared__SharedFunctionInfo")?,
        shared_name: offset(name)?,
        shared_script: offset(script)?,
        positions: match first_name {
            5 => Positions::At(field(3)?),
            _ => Positions::BehindNames,
        },
        scope_names: field(first_name)?,
        bytecode_positions,
        bytecode_data: offset(c"v8dbg_class_BytecodeArray__data__uintptr_t")?,
        before_code: BeforeCode {
            map: before_code.0,
            code: before_code.1,
        },
        // Behind the map and the length.
        inlined: field(u64::from(inlined).checked_add(1)?).filter(is_likely)?,
        knows_maglev: major > 11,
        compiled_of: field(u64::from(compiled_of).checked_add(1)?).filter(is_likely)?,
        compiled_number: field(u64::from(compiled_number).checked_add(1)?).filter(is_likely)?,
        // A type of frames, as a small number of V8's.
        expression: u64::from(constant(c"v8dbg_frametype_IrregexpFrame")?).checked_mul(2)?,
        baseline: {
            let (bytecodes, table, flags, size, lengths) = baseline;
            Baseline {
                code: constant(c"v8dbg_type_Code__CODE_TYPE")?,
                bytecodes,
                table,
                flags,
                compiler: constant(c"v8dbg_CodeKindBaseline")?,
                size,
                lengths,
            }
        },
    })
}

fn is_likely(offset: &u64) -> bool {
    *offset < 512
}
