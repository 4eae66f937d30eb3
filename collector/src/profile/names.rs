//! Makes the names of a recording fit to be shown, once its addresses are looked up: from here on
//! nobody opens files by them.

use crate::recording::Recording;
use crate::symbolize::Symbols;
use crate::visible::visible;
use std::borrow::Cow;
use std::sync::Arc;

/// Spells out what acts on a terminal or a file in every name.
pub(super) fn make_visible(recording: &mut Recording, symbols: &mut Symbols) {
    let session = recording.session.iter_mut();
    session.for_each(|session| {
        text(&mut session.kernel);
        text(&mut session.host);
        session.command.iter_mut().for_each(text);
    });
    for source in &mut recording.sources {
        text(&mut source.name);
    }
    for process in &mut recording.processes {
        for name in [
            &mut process.executable,
            &mut process.called,
            &mut process.cgroup,
            &mut process.container,
        ] {
            text(name);
        }
        process.command.iter_mut().for_each(text);
        for event in &mut process.events {
            text(&mut event.text);
        }
    }
    for thread in &mut recording.threads {
        text(&mut thread.name);
    }
    for module in &mut recording.modules {
        text(&mut module.path);
    }
    recording.languages.iter_mut().for_each(text);
    for (key, value) in recording.labels.iter_mut().flatten() {
        shared(key);
        shared(value);
    }
    for image in &mut symbols.images {
        text(&mut image.path);
    }
    for named in symbols
        .places
        .iter_mut()
        .flat_map(|place| &mut place.functions)
    {
        shared(&mut named.function);
        named.short.iter_mut().for_each(shared);
        named.file.iter_mut().for_each(shared);
    }
    symbols.notes.iter_mut().for_each(text);
}

fn text(text: &mut String) {
    if let Cow::Owned(shown) = visible(text) {
        *text = shown;
    }
}

fn shared(text: &mut Arc<str>) {
    if let Cow::Owned(shown) = visible(text) {
        *text = Arc::from(shown);
    }
}
