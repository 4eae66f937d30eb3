//! Code that a JIT made and registered without a callback: where it is, what it is called, how it
//! is unwound.
//!
//! ```text
//!   page of a pc ─► bucket ─► node ─► node …
//!   node: page, code        code: range, rules, name, file, lines
//! ```
//!
//! Handlers on all threads look codes up, where the rule cache has no answer, while ordinary code
//! adds and removes some. A node is whole before it is linked, and what has been removed stays as
//! it is until no walk is under way that began before.
//!
//! A code is described to the recording when a walk first finds it, so that what is never sampled
//! costs no room there.
//!
//! # Safety
//! One writer at a time, under the [lock](super::lock); nodes and codes lie in the [arena].
#![allow(unsafe_code)]

use super::arena;
use super::codes;
use super::layout::{JitCode, JitRule};
use super::lock::Locked;
use super::table;
use crate::described;
use crate::error::Error;
use crate::process::PROCESS;
use crate::thread::{self, ThreadState};
use crate::{clock, sys};
use core::ptr;
use core::slice;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, fence};
use engine::registers::{FP, SP};
use engine::rule::UnwindRule;
use engine::rule::wide::{Cfa, Row, Saved};
use engine::wire::code::{Code as CodeRecord, CodeGone, LONGEST_LINES, LineFormat};
use engine::wire::record::RecordKind;
use engine::wire::sample::{Method, StopReason};

/// Longest code, bytes.
const LONGEST: u64 = 16 << 20;
/// Most rows of rules that a code may have.
const MOST_RULES: usize = 1024;
/// Removed codes that are kept, at least, before walks are waited for.
const RETIRED: usize = 64;
const BUCKETS: usize = 65_536;
const PAGE: u64 = 4096;

type Buckets = [AtomicPtr<Node>; BUCKETS];

static TABLE: AtomicPtr<Buckets> = AtomicPtr::new(ptr::null_mut());
/// Codes that are registered.
static COUNT: AtomicUsize = AtomicUsize::new(0);

#[repr(C)]
struct Node {
    next: AtomicPtr<Node>,
    page: u64,
    code: *const Code,
}

/// A code; behind it in its block are its rules, language, name, file and lines.
#[repr(C)]
struct Code {
    start: u64,
    end: u64,
    /// Bytes of the block.
    size: usize,
    rules: usize,
    language: usize,
    name: usize,
    file: usize,
    lines: usize,
    first_line: u32,
    format: LineFormat,
    /// Under which number it was described, and in which process, by its key; 0 if it was not.
    number: AtomicU64,
    described: AtomicU64,
    /// Not 0 once a walk has found it, so that its rules may be cached.
    found: AtomicU64,
    /// The next one that was removed.
    retired: AtomicPtr<Code>,
}

/// From an offset on.
#[derive(Clone, Copy)]
#[repr(C)]
struct Rule {
    from: u64,
    rule: u64,
}

impl Code {
    /// What lies behind it.
    fn parts(&self) -> (&[Rule], [&[u8]; 4]) {
        let behind = ptr::from_ref(self).wrapping_add(1);
        let lengths = [self.language, self.name, self.file, self.lines];
        // SAFETY: `fill` has written so many there, in the same block.
        unsafe {
            let rules = slice::from_raw_parts(behind.cast::<Rule>(), self.rules);
            let mut at = behind.cast::<Rule>().wrapping_add(self.rules).cast::<u8>();
            let texts = lengths.map(|length| {
                let text = slice::from_raw_parts(at, length);
                at = at.wrapping_add(length);
                text
            });
            (rules, texts)
        }
    }

    fn rule_at(&self, pc: u64) -> UnwindRule {
        let offset = pc.wrapping_sub(self.start);
        let (rules, _) = self.parts();
        let row = rules.iter().rev().find(|rule| rule.from <= offset);
        row.map_or(UnwindRule::frame_pointer(StopReason::NoRow), |row| {
            UnwindRule::from_bits(row.rule)
        })
    }
}

/// Whether there is any.
#[inline]
pub(super) fn any() -> bool {
    COUNT.load(Relaxed) != 0
}

fn table() -> Option<&'static Buckets> {
    // SAFETY: null, or zeroed memory of that size, which is an empty table; it stays.
    unsafe { TABLE.load(Acquire).as_ref() }
}

fn bucket(page: u64) -> Option<&'static AtomicPtr<Node>> {
    let index = (page ^ page >> 16) as usize % BUCKETS;
    table()?.get(index)
}

fn prepare() -> Result<(), Error> {
    if table().is_some() {
        return Ok(());
    }
    let memory = sys::map_anonymous(size_of::<Buckets>()).map_err(|_| Error::Memory)?;
    let made = TABLE.compare_exchange(ptr::null_mut(), memory.cast(), AcqRel, Acquire);
    if made.is_err() {
        // SAFETY: nobody has seen it.
        unsafe { sys::unmap(memory, size_of::<Buckets>()) };
    }
    Ok(())
}

/// The code at an address.
fn find(pc: u64) -> Option<&'static Code> {
    let page = pc / PAGE;
    let mut next = bucket(page)?.load(Acquire);
    // SAFETY: linked nodes are whole, and stay as they are during a walk; the same for their codes.
    while let Some(node) = unsafe { next.as_ref() } {
        if node.page == page {
            // SAFETY: as above.
            let code = unsafe { &*node.code };
            if (code.start..code.end).contains(&pc) {
                return Some(code);
            }
        }
        next = node.next.load(Acquire);
    }
    None
}

/// The rule of registered code, which is described to the recording if it was not.
///
/// # Signal safety
/// In a walk: loads, and at most one record for each code.
pub(super) fn rule(this: &ThreadState, pc: u64) -> Option<UnwindRule> {
    let code = find(pc)?;
    // Who removes it looks at this after unlinking: either that sees this, or it is not there any
    // more.
    code.found.store(1, SeqCst);
    fence(SeqCst);
    let code = find(pc).filter(|again| ptr::eq(*again, code))?;
    let process = PROCESS.key();
    if PROCESS.is_active() && code.described.swap(process, AcqRel) != process {
        let number = described::new_number();
        code.number.store(number, Relaxed);
        let (_, [language, name, file, lines]) = code.parts();
        let record = CodeRecord {
            number,
            time_ns: clock::monotonic_ns(),
            start: code.start,
            size: code.end.saturating_sub(code.start),
            language,
            name,
            file,
            first_line: code.first_line,
            format: code.format,
            lines,
        };
        if !this.write(RecordKind::Code, |out| record.encode(out)) {
            code.described.store(0, Relaxed);
        }
    }
    Some(code.rule_at(pc))
}

fn lower(rule: &JitRule) -> Result<UnwindRule, Error> {
    let register = match rule.cfa_register {
        6 => FP,
        7 => SP,
        _ => return Err(Error::Null),
    };
    let mut row = Row::new(Cfa::Offset {
        register,
        offset: rule.cfa_offset,
    });
    for (place, offset) in row.saved.iter_mut().zip(rule.saved) {
        if offset != 0 {
            *place = Saved::At(i32::from(offset));
        }
    }
    UnwindRule::from_row(&row, Method::Told).ok_or(Error::Null)
}

/// Registers code.
///
/// # Errors
/// [`Error::Null`] for what the header does not allow, code that overlaps other code of this kind
/// among it; [`Error::Memory`].
///
/// # Safety
/// What `code` points at can be read.
pub unsafe fn add(code: &JitCode) -> Result<(), Error> {
    let start = code.start as u64;
    let end = start.checked_add(code.length as u64).ok_or(Error::Null)?;
    let is_range = start != 0 && start < end && end - start <= LONGEST && end >> 47 == 0;
    let has_rules = code.rule_count == 0 || !code.rules.is_null();
    if code.size != size_of::<JitCode>() || !is_range || !has_rules || code.rule_count > MOST_RULES
    {
        return Err(Error::Null);
    }
    // SAFETY: the caller's promise.
    let language = unsafe { table::name_of(code.language) }?;
    // SAFETY: as above.
    let described = unsafe { codes::look_at(code.code) }?;
    let rules = match code.rule_count {
        0 => &[][..],
        // SAFETY: as above.
        count => unsafe { slice::from_raw_parts(code.rules, count) },
    };
    let is_sorted = rules.is_sorted_by_key(|rule| rule.from);
    if !is_sorted || rules.iter().any(|rule| lower(rule).is_err()) {
        return Err(Error::Null);
    }
    let mut buffer = [0u8; LONGEST_LINES];
    let (format, lines) = codes::lines_of(&described, &mut buffer);
    let texts = [language, described.name, described.file, lines];
    let behind = texts.iter().map(|text| text.len()).sum::<usize>();
    let size = size_of::<Code>() + rules.len() * size_of::<Rule>() + behind;
    prepare()?;
    let _locked = Locked::now();
    if overlaps(start, end) {
        return Err(Error::Null);
    }
    // SAFETY: locked.
    let block = unsafe { arena::take(size) }
        .ok_or(Error::Memory)?
        .cast::<Code>();
    // SAFETY: a block of that size that nobody else sees.
    unsafe {
        block.write(Code {
            start,
            end,
            size,
            rules: rules.len(),
            language: language.len(),
            name: described.name.len(),
            file: described.file.len(),
            lines: lines.len(),
            first_line: described.first_line,
            format,
            number: AtomicU64::new(0),
            described: AtomicU64::new(0),
            found: AtomicU64::new(0),
            retired: AtomicPtr::new(ptr::null_mut()),
        });
        let mut at = block.wrapping_add(1).cast::<Rule>();
        for rule in rules {
            let bits = lower(rule)?.bits();
            at.write(Rule {
                from: u64::from(rule.from),
                rule: bits,
            });
            at = at.wrapping_add(1);
        }
        let mut at = at.cast::<u8>();
        for text in texts {
            at.copy_from_nonoverlapping(text.as_ptr(), text.len());
            at = at.wrapping_add(text.len());
        }
    }
    for page in start / PAGE..=(end - 1) / PAGE {
        // SAFETY: locked; the code is whole.
        if unsafe { link(page, block) }.is_err() {
            unlink(block, page);
            // SAFETY: locked. A walk may have seen it.
            unsafe { retire(block) };
            return Err(Error::Memory);
        }
    }
    COUNT.fetch_add(1, Release);
    Ok(())
}

fn overlaps(start: u64, end: u64) -> bool {
    let pages = start / PAGE..=(end - 1) / PAGE;
    pages.into_iter().any(|page| {
        let mut next = bucket(page).map_or(ptr::null_mut(), |head| head.load(Relaxed));
        // SAFETY: locked: linked nodes stay.
        while let Some(node) = unsafe { next.as_ref() } {
            // SAFETY: as above.
            let code = unsafe { &*node.code };
            if node.page == page && code.start < end && start < code.end {
                return true;
            }
            next = node.next.load(Relaxed);
        }
        false
    })
}

/// # Safety
/// Locked, and the code is whole.
unsafe fn link(page: u64, code: *const Code) -> Result<(), Error> {
    let head = bucket(page).ok_or(Error::Memory)?;
    // SAFETY: locked.
    let node = unsafe { arena::take(size_of::<Node>()) }
        .ok_or(Error::Memory)?
        .cast::<Node>();
    // SAFETY: a fresh block.
    unsafe {
        node.write(Node {
            next: AtomicPtr::new(head.load(Relaxed)),
            page,
            code,
        });
    }
    head.store(node, Release);
    Ok(())
}

/// Takes a code's nodes out of the buckets of its pages before `end`; they are found again through
/// the code when it is freed.
fn unlink(code: *const Code, end: u64) {
    // SAFETY: locked, and the code is there.
    let first = unsafe { (*code).start } / PAGE;
    for page in first..end {
        let Some(mut link) = bucket(page) else { return };
        // SAFETY: locked: linked nodes stay.
        while let Some(node) = unsafe { link.load(Relaxed).as_ref() } {
            if node.page == page && ptr::eq(node.code, code) {
                // Who stands on it finds the way on.
                link.store(node.next.load(Relaxed), Release);
                // SAFETY: locked; freed with its code, when nobody can be on it.
                unsafe { keep_node(ptr::from_ref(node).cast_mut()) };
                break;
            }
            link = &node.next;
        }
    }
}

/// Removed codes and nodes that walks may still be on, and how many codes.
static RETIRED_CODES: AtomicPtr<Code> = AtomicPtr::new(ptr::null_mut());
static RETIRED_NODES: AtomicPtr<Kept> = AtomicPtr::new(ptr::null_mut());
static RETIRED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Removed nodes keep their `next` for who stands on them; so they are listed in blocks of their
/// own.
#[repr(C)]
struct Kept {
    next: *mut Kept,
    node: *mut Node,
}

/// # Safety
/// Locked, and the node is linked nowhere any more.
unsafe fn keep_node(node: *mut Node) {
    // SAFETY: locked.
    let Some(kept) = (unsafe { arena::take(size_of::<Kept>()) }) else {
        return; // its memory is lost
    };
    let kept = kept.cast::<Kept>();
    let next = RETIRED_NODES.load(Relaxed);
    // SAFETY: a fresh block.
    unsafe { kept.write(Kept { next, node }) };
    RETIRED_NODES.store(kept, Relaxed);
}

/// # Safety
/// Locked, and the code's nodes are linked nowhere any more.
unsafe fn retire(code: *mut Code) {
    // SAFETY: the caller's promise.
    unsafe { (*code).retired.store(RETIRED_CODES.load(Relaxed), Relaxed) };
    RETIRED_CODES.store(code, Relaxed);
    if RETIRED_COUNT.fetch_add(1, Relaxed) < RETIRED {
        return;
    }
    fence(SeqCst);
    if !thread::wait_for_walks(ThreadState::current_unchecked()) {
        return;
    }
    RETIRED_COUNT.store(0, Relaxed);
    let mut next = RETIRED_CODES.swap(ptr::null_mut(), Relaxed);
    let mut kept = RETIRED_NODES.swap(ptr::null_mut(), Relaxed);
    // SAFETY: no walk is under way that began before they were unlinked, and they are given back
    // once.
    unsafe {
        while let Some(code) = next.as_ref() {
            let (block, size) = (next, code.size);
            next = code.retired.load(Relaxed);
            arena::give_back(block.cast(), size);
        }
        while !kept.is_null() {
            let (block, this) = (kept, kept.read());
            kept = this.next;
            arena::give_back(this.node.cast(), size_of::<Node>());
            arena::give_back(block.cast(), size_of::<Kept>());
        }
    }
}

/// Takes back the code that begins at an address.
///
/// # Errors
/// [`Error::NoClient`] if none does; [`Error::InCallback`] in a walk of the same thread.
pub fn remove(start: u64) -> Result<(), Error> {
    table::not_in_a_walk()?;
    let _locked = Locked::now();
    let code = find(start)
        .filter(|code| code.start == start)
        .ok_or(Error::NoClient)?;
    unlink(code, (code.end - 1) / PAGE + 1);
    COUNT.fetch_sub(1, Release);
    fence(SeqCst);
    if code.found.load(SeqCst) != 0 {
        table::forget_rules();
    }
    if code.described.load(Acquire) == PROCESS.key()
        && PROCESS.is_active()
        && let Some(this) = ThreadState::current()
    {
        let gone = CodeGone {
            time_ns: clock::monotonic_ns(),
            number: code.number.load(Relaxed),
        };
        this.write(RecordKind::CodeGone, |out| gone.encode(out));
    }
    // SAFETY: locked and unlinked.
    unsafe { retire(ptr::from_ref(code).cast_mut()) };
    Ok(())
}
