//! V8's structures of any content: from a frame to its function and the lines of that, nothing else
//! is read, everything ends, and texts fit.
//!
//! Input: the version (1 byte), what is known of the frame (1), where its registers lead to (6
//! times 2), then memory.
#![no_main]

mod fuzzed;

use engine::v8::frame::{LARGEST, Native, is_expression, standing};
use engine::v8::layout;
use engine::v8::met::Moment;
use engine::wire::code::{LONGEST_FILE, LONGEST_LINES, LONGEST_NAME};
use fuzzed::{BASE, Fuzzed};
use libfuzzer_sys::fuzz_target;
use std::ffi::CStr;

/// What a V8 of that version exports. Of what has the same value in all of them, by its name alone.
fn constant((major, minor): (u32, u32), name: &CStr) -> Option<u32> {
    let (name, is_new) = (name.to_str().unwrap(), major == 13);
    Some(match name {
        "_ZN2v88internal7Version6major_E" => major,
        "_ZN2v88internal7Version6minor_E" => minor,
        "v8dbg_SmiValueShift" => 1,
        "v8dbg_SmiShiftSize" => 31,
        "v8dbg_scopeinfo_idx_first_vars" => {
            if is_new {
                5
            } else {
                3
            }
        }
        "v8dbg_type_JSFunction__JS_FUNCTION_TYPE" => 2066,
        "v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE" => 262,
        "v8dbg_type_Script__SCRIPT_TYPE" => 167,
        "v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE" => 261,
        "v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE" => 191,
        "v8dbg_type_Code__CODE_TYPE" => 190,
        "v8dbg_CodeKindBaseline" => 10,
        "v8dbg_frametype_IrregexpFrame" => 38,
        "v8dbg_DeoptimizationDataInliningPositionsIndex" => 7,
        "v8dbg_DeoptimizationDataOptimizationIdIndex" => 5,
        "v8dbg_DeoptimizationDataSharedFunctionInfoIndex" if !is_new => 6,
        "v8dbg_DeoptimizationDataWrappedSharedFunctionInfoIndex" if is_new => 6,
        "v8dbg_class_BytecodeArray__data__uintptr_t" => 54,
        "v8dbg_class_JSFunction__shared__SharedFunctionInfo" => {
            if is_new {
                32
            } else {
                24
            }
        }
        _ if name.contains("__name_or_scope_info__") => {
            if is_new {
                24
            } else {
                16
            }
        }
        _ if name.contains("__script") => {
            if is_new {
                40
            } else {
                32
            }
        }
        _ => return None,
    })
}

fuzz_target!(|data: &[u8]| {
    let Some(([version, known, registers @ ..], bytes)) = data.split_first_chunk::<14>() else {
        return;
    };
    let version = [(11, 3), (12, 4), (13, 6)][usize::from(version % 3)];
    let layout = layout::of(|name| constant(version, name)).expect("that version");
    let memory = Fuzzed::new(bytes);
    let has = |bit: u8| known >> bit & 1 != 0;
    let register = |index: usize| {
        BASE + u64::from(u16::from_le_bytes(
            *registers.as_chunks().0.get(index).unwrap(),
        ))
    };
    let frame = Native {
        is_exact: has(0),
        is_compiled: has(1),
        pc: register(0),
        sp: register(1),
        fp: register(2),
        rdi: has(2).then(|| register(3)),
        r9: has(3).then(|| register(4)),
        r12: has(4).then(|| register(5)),
    };
    let is_expression = is_expression(&memory, &frame, layout.expression);
    let Some(standing) = standing(&memory, &frame) else {
        return;
    };
    // A context is no small number; before the frame is there, it is another's.
    assert!(!is_expression || standing.fp.is_none());
    assert!(
        standing
            .fp
            .is_none_or(|fp| fp >= frame.sp && fp - frame.sp <= LARGEST)
    );
    let thread = u64::from(known >> 5);
    // All functions are the ones that were proved before.
    let callers = [Some(frame.sp); 2];
    layout.owner(&memory, &frame, &standing, Some, callers);
    let Some(shared) = layout.shared(&memory, standing.function) else {
        return;
    };
    let check = layout.check(&memory, shared, thread);
    let place = layout.place(&memory, &frame, &standing, (shared, check));
    let moment = Moment::at(thread, 0);
    let is_kept = layout.keep(&memory, &frame, (shared, check), &place, &moment);
    let met = layout.met(&memory, &frame, &standing, &moment);
    // Where a function has moved, that is not followed.
    if let Some(met) = is_kept.and(met) {
        let place = (place.id, place.position);
        assert_eq!((met.check, met.id, met.position), (check, place.0, place.1));
    }
    layout.describe(&memory, shared, &place, thread, |code, _| {
        assert!(code.name.len() <= LONGEST_NAME && code.file.len() <= LONGEST_FILE);
        assert!(code.lines.len() <= LONGEST_LINES);
        assert!(std::str::from_utf8(code.name).is_ok() && std::str::from_utf8(code.file).is_ok());
        let _ = code.line(place.position);
    });
});
