//! Libraries that come and go under fire.

use rsunwind_tests::run::Run;
use rsunwind_tests::victim;

#[test]
fn libraries_are_closed_while_threads_are_sampled_in_them() {
    let directory = tempfile::tempdir().unwrap();
    let plugins: Vec<_> = (0..6)
        .map(|number| {
            let copy = directory.path().join(format!("libplugin{number}.so"));
            std::fs::copy(victim::shared("plugin.c"), &copy).unwrap();
            copy
        })
        .collect();
    let outcome = Run::profiled("rate=10000,cost=1", victim::c("unload.c"))
        .arg("300")
        .args(&plugins)
        .outcome()
        .quiet();
    assert_eq!(outcome.text(), format!("{}\n", 3 * 300 * 42));
    let recording = outcome.recording();
    let modules = recording
        .modules
        .iter()
        .filter(|module| module.path.contains("libplugin"));
    let (gone, all) = modules.fold((0, 0), |(gone, all), module| {
        (gone + usize::from(module.gone), all + 1)
    });
    assert!(
        all > 6 && gone > 3,
        "{gone} of {all} modules were taken out of the map again"
    );
    assert!(recording.samples().count() > 1000);
}
