//! The cgroup of a process, and the container that it runs in, as its cgroup's name tells.

use std::fs;

/// Where docker keeps what it knows of its containers, and how it is called there.
const DOCKER: &str = "/var/lib/docker/containers";
const DOCKER_KNOWS: &str = "config.v2.json";
/// Digits of a container's number, and how many of them people see.
const DIGITS: usize = 64;
const SHORT: usize = 12;

/// The path of its cgroup, and the name of its container; empty where there is none.
pub(super) fn find(pid: i32) -> (String, String) {
    let text = fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let path = path(&text).unwrap_or_default();
    let container = match container(path) {
        Some(Container::Named(name)) => name.to_owned(),
        Some(Container::Numbered(number)) => docker_name(number)
            .or_else(|| host_name(pid))
            .unwrap_or_else(|| number[..SHORT].to_owned()),
        None => String::new(),
    };
    (path.to_owned(), container)
}

/// The path in lines `NUMBER:CONTROLLERS:PATH`: that of version 2, if version 1 is not what is
/// used; else that of whoever starts services, or the one that says the most.
fn path(text: &str) -> Option<&str> {
    let lines = || text.lines().filter_map(|line| line.split_once(':'));
    let of = |wanted: &str| {
        let mut found = lines().filter_map(|(_, rest)| rest.split_once(':'));
        found.find_map(|(controllers, path)| (controllers == wanted).then_some(path))
    };
    let says = |path: &&str| *path != "/";
    let longest = || {
        let paths = lines().filter_map(|(_, rest)| Some(rest.split_once(':')?.1));
        paths.max_by_key(|path| path.len())
    };
    let usual = of("").filter(says);
    usual
        .or_else(|| of("name=systemd").filter(says))
        .or_else(longest)
}

/// How a cgroup's name tells a container.
#[derive(Debug, PartialEq, Eq)]
enum Container<'a> {
    /// By a number that its manager gave it.
    Numbered(&'a str),
    /// By name.
    Named(&'a str),
}

fn container(path: &str) -> Option<Container<'_>> {
    let is_number =
        |piece: &&str| piece.len() == DIGITS && piece.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = || path.split('/').rev();
    // docker-NUMBER.scope, cri-containerd-NUMBER.scope, crio-NUMBER, or the bare number.
    let mut pieces = parts().flat_map(|part| part.split(['-', '.', ':']));
    if let Some(number) = pieces.find(is_number) {
        return Some(Container::Numbered(number));
    }
    let named = |part| {
        let name = |before: &str, after: &str| {
            let name: &str = str::strip_prefix(part, before)?.strip_suffix(after)?;
            (!name.is_empty()).then_some(Container::Named(name))
        };
        name("lxc.payload.", "")
            .or_else(|| name("systemd-nspawn@", ".service"))
            .or_else(|| name("machine-", ".scope"))
    };
    parts().find_map(named)
}

/// What docker calls it, if we may read that.
fn docker_name(number: &str) -> Option<String> {
    let file = fs::read(format!("{DOCKER}/{number}/{DOCKER_KNOWS}")).ok()?;
    let known: serde_json::Value = serde_json::from_slice(&file).ok()?;
    let name = known.get("Name")?.as_str()?.trim_start_matches('/');
    (!name.is_empty()).then(|| name.to_owned())
}

/// Its host name, as managers put it into the environment: of Kubernetes the pod's.
fn host_name(pid: i32) -> Option<String> {
    let environment = super::environment(pid);
    let mut words = environment.split(|byte| *byte == 0);
    let name = words.find_map(|word| word.strip_prefix(b"HOSTNAME="))?;
    (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_the_one_that_says_something() {
        let both = "4:memory:/a/b\n1:name=systemd:/user.slice\n0::/\n";
        assert_eq!(path(both), Some("/user.slice"));
        assert_eq!(
            path("4:memory:/a/b:c\n1:name=systemd:/\n0::/\n"),
            Some("/a/b:c")
        );
        assert_eq!(
            path("0::/system.slice/x.service\n"),
            Some("/system.slice/x.service")
        );
        assert_eq!(
            (path("0::/\n"), path(""), path("x")),
            (Some("/"), None, None)
        );
    }

    #[test]
    fn containers_are_told_by_the_names_that_their_managers_give() {
        let number = "0123456789abcdef".repeat(4);
        for path in [
            format!("/system.slice/docker-{number}.scope"),
            format!("/docker/{number}"),
            format!("/kubepods.slice/pod1.slice/cri-containerd-{number}.scope"),
            format!("/machine.slice/libpod-{number}.scope/container"),
        ] {
            assert_eq!(
                container(&path),
                Some(Container::Numbered(&number)),
                "{path}"
            );
        }
        for path in [
            "/lxc.payload.web/init.scope",
            "/machine.slice/systemd-nspawn@web.service",
            "/machine.slice/machine-web.scope",
        ] {
            assert_eq!(container(path), Some(Container::Named("web")), "{path}");
        }
        for path in [
            "/",
            "",
            "/system.slice/nginx.service",
            "/user.slice/machine-.scope",
        ] {
            assert_eq!(container(path), None, "{path}");
        }
    }

    #[test]
    fn a_process_finds_its_own() {
        let (path, _) = find(std::process::id().cast_signed());
        assert!(path.starts_with('/'), "{path}");
        assert_eq!(find(-1), (String::new(), String::new()));
    }
}
