//! What is said of where windows are from: OpenTelemetry's names.

use super::Args;
use super::course::Course;
use super::settings::{SERVICE, Settings};
use crate::target;
use nix::sys::utsname::uname;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Attributes of everything that is sent. What settings say holds, and then what the target
/// process publishes of itself.
pub(super) fn attributes(
    args: &Args,
    course: &Course,
    settings: &Settings,
    published: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut put = |key: &str, value: String| {
        if !value.is_empty() {
            all.insert(key.to_owned(), value);
        }
    };
    if let Ok(system) = uname() {
        put(
            "host.name",
            system.nodename().to_string_lossy().into_owned(),
        );
        put("host.arch", arch(&system.machine().to_string_lossy()));
        put(
            "os.version",
            system.release().to_string_lossy().into_owned(),
        );
    }
    put("os.type", "linux".into());
    put("host.id", read("/etc/machine-id"));
    let pid = running(course);
    let process = pid.map_or("self".to_owned(), |pid| pid.to_string());
    let executable = match (pid, args.target.command.first()) {
        (Some(pid), _) => fs::read_link(format!("/proc/{pid}/exe")).ok(),
        (None, command) => command.map(Into::into),
    };
    let name = executable.as_deref().and_then(Path::file_name);
    let name = name.map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    put("process.executable.name", name.clone());
    put(
        SERVICE,
        match name.is_empty() {
            true => "unknown_service".to_owned(),
            false => name,
        },
    );
    if !args.is_running() || pid.is_some() {
        for (key, value) in whereabouts(&process) {
            put(key, value);
        }
    }
    all.extend(published.clone());
    all.extend(settings.labels.clone());
    if let Some(service) = &settings.service {
        all.insert(SERVICE.into(), service.clone());
    }
    all
}

/// The container, the pod and the cgroup of a process, as far as there are any.
pub(super) fn whereabouts(process: &str) -> impl Iterator<Item = (&'static str, String)> + use<> {
    let group = cgroup(&read(&format!("/proc/{process}/cgroup")));
    let all = [
        (
            "container.id",
            container(&group).unwrap_or_default().to_owned(),
        ),
        ("k8s.pod.uid", pod(&group).unwrap_or_default()),
        ("linux.cgroup.path", group),
    ];
    all.into_iter().filter(|(_, value)| !value.is_empty())
}

/// The process that was named, if that is one.
pub(super) fn running(course: &Course) -> Option<i32> {
    let found = target::find(course.pid.as_deref()?).ok()?;
    match &found[..] {
        [one] => Some(one.pid.as_raw()),
        _ => None,
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn arch(machine: &str) -> String {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
    .to_owned()
}

/// The path in `/proc/PID/cgroup`: that of version 2, or else the longest.
fn cgroup(text: &str) -> String {
    let paths = text.lines().filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (_, path) = rest.split_once(':')?;
        Some((number == "0" && path != "/", path.len(), path))
    });
    let best = paths.max().map_or("", |(_, _, path)| path);
    best.trim_end_matches('/').to_owned()
}

/// The id of a container: 64 hexadecimal digits, in the last part of the path that has them.
fn container(group: &str) -> Option<&str> {
    let words = group.rsplit(['/', '-', '.', ':']);
    let is_id = |word: &&str| word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit());
    words.into_iter().find(is_id)
}

/// The uid of a pod: behind `pod`, with hyphens or with what systemd makes of them.
fn pod(group: &str) -> Option<String> {
    const LENGTH: usize = 36;
    let mut starts = group.match_indices("pod").map(|(at, _)| at + 3);
    starts.find_map(|at| {
        let uid = group.get(at..at + LENGTH)?.replace('_', "-");
        let mut letters = uid.bytes().enumerate();
        letters
            .all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
            .then_some(uid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// As OpenTelemetry's specification of resources has it: what a user says comes first (the
    /// environment is the secondary resource), and what was detected last.
    #[test]
    fn what_users_say_holds_before_what_the_process_does_and_that_before_what_was_found() {
        let line = [
            "agent",
            "--files",
            "/f",
            "--label",
            "said=user",
            "--",
            "/bin/prog",
        ];
        let args = <Line as clap::Parser>::parse_from(line).args;
        let mut settings = Settings::read(&args).unwrap();
        settings.service = None;
        settings.labels.remove(SERVICE);
        let course = Course::of(&args, &settings).unwrap();
        let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let published = [
            (SERVICE, "process"),
            ("said", "process"),
            ("own", "process"),
        ];
        let published = published.map(pair).into();
        let nothing = BTreeMap::new();
        let said = |settings: &Settings, published| {
            let all = attributes(&args, &course, settings, published);
            ["own", "said", SERVICE].map(|key| all.get(key).cloned().unwrap_or_default())
        };
        assert_eq!(said(&settings, &nothing), ["", "user", "prog"]);
        assert_eq!(said(&settings, &published), ["process", "user", "process"]);
        settings.service = Some("user".into());
        assert_eq!(said(&settings, &published), ["process", "user", "user"]);
    }

    #[test]
    fn containers_and_pods_are_known_by_their_cgroup() {
        let id = "0123456789abcdef".repeat(4);
        let uid = "2f1f7c5e-1c5f-4b7e-9a3c-0123456789ab";
        for group in [
            format!("/kubepods/burstable/pod{uid}/{id}"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{id}.scope",
                uid.replace('-', "_")
            ),
        ] {
            assert_eq!(container(&group), Some(&*id), "{group}");
            assert_eq!(pod(&group).as_deref(), Some(uid), "{group}");
        }
        let docker = format!("/system.slice/docker-{id}.scope");
        assert_eq!((container(&docker), pod(&docker)), (Some(&*id), None));
        let service = "/system.slice/podman-thing.service";
        assert_eq!((container(service), pod(service)), (None, None));
    }

    #[test]
    fn the_path_is_that_of_version_two_or_the_one_that_says_most() {
        assert_eq!(cgroup("0::/user.slice/a.scope\n"), "/user.slice/a.scope");
        assert_eq!(
            cgroup("2:cpu:/docker/b\n1:name=systemd:/\n0::/\n"),
            "/docker/b"
        );
        assert_eq!(cgroup("0::/\n"), "");
    }
}
