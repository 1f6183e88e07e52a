//! Seccomp: which system calls a command can make.
//!
//! Landlock does not cover some of what the kernel offers: sockets other than TCP, the modes and times of files, the
//! limits and priorities of other processes, and leaving a process group. A call that is not in [`ALLOWED`] fails. A
//! list of forbidden calls would not suffice, because calls by the numbers of another calling convention (x32) would
//! bypass it.
//!
//! Three filters apply to each call. If several refuse it, the one that was installed last counts:
//! - the first allows the listed calls, and answers any other like a kernel that does not know it (`ENOSYS`), so that
//!   programs use what older kernels have;
//! - the second refuses the calls in [`FORBIDDEN`] with `EPERM`, so that messages say what happened;
//! - the third does nothing for the calls in [`IGNORED`] and reports success, because programs such as `git` and `tar`
//!   end at an error.

use libc::{
    AF_UNIX, CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS,
    SOCK_SEQPACKET, SOCK_STREAM,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Is, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;

/// The type of a socket, without its flags.
const SOCK_TYPE_MASK: u64 = 0xF;

/// Forbids what [`super::landlock`] does not cover, for this process and everything that it starts.
///
/// # Errors
/// The reason why the kernel does not do it, as text for the log.
pub(super) fn forbid() -> Result<(), String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|_| format!("the sandbox does not support `{}` processors", std::env::consts::ARCH))?;
    for program in programs(arch).map_err(|error| format!("build the seccomp filter: {error}"))? {
        apply_filter(&program).map_err(|error| format!("seccomp cannot be used: {error}. The sandbox needs it"))?;
    }
    Ok(())
}

/// Returns the filters in the order in which they are installed.
fn programs(arch: TargetArch) -> Result<[BpfProgram; 3], BackendError> {
    let errno = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    let allowed = rules(ALLOWED, &allowed_if()?);
    let forbidden = rules(FORBIDDEN, &[]);
    let ignored = rules(IGNORED, &[(libc::SYS_utimensat, vec![rule(&[(1, Width::Qword, Is::Ne, 0)])?])]);
    Ok([
        SeccompFilter::new(allowed, errno(libc::ENOSYS), SeccompAction::Allow, arch)?.try_into()?,
        SeccompFilter::new(forbidden, SeccompAction::Allow, errno(libc::EPERM), arch)?.try_into()?,
        SeccompFilter::new(ignored, SeccompAction::Allow, errno(0), arch)?.try_into()?,
    ])
}

fn rules(listed: &[i64], conditional: &[(i64, Vec<SeccompRule>)]) -> BTreeMap<i64, Vec<SeccompRule>> {
    listed.iter().map(|call| (*call, Vec::new())).chain(conditional.iter().cloned()).collect()
}

/// Returns a rule that holds if all of these conditions on arguments hold.
fn rule(conditions: &[(u8, Width, Is, u64)]) -> Result<SeccompRule, BackendError> {
    let conditions = conditions
        .iter()
        .map(|(argument, width, is, value)| SeccompCondition::new(*argument, width.clone(), is.clone(), *value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

/// Calls that are allowed with some arguments.
fn allowed_if() -> Result<Vec<(i64, Vec<SeccompRule>)>, BackendError> {
    let namespaces =
        CLONE_NEWCGROUP | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUSER | CLONE_NEWUTS;
    let itself = |argument| rule(&[(argument, Width::Dword, Is::Eq, 0)]);
    let pair_of = |kind: i32| {
        rule(&[
            (0, Width::Dword, Is::Eq, u64::from(AF_UNIX.unsigned_abs())),
            (1, Width::Dword, Is::MaskedEq(SOCK_TYPE_MASK), u64::from(kind.unsigned_abs())),
        ])
    };
    Ok(vec![
        // This excludes namespaces, in which a command would have more rights. `clone3` hides its flags from filters,
        // so it is not listed, and programs use `clone`.
        (libc::SYS_clone, vec![rule(&[(0, Width::Qword, Is::MaskedEq(u64::from(namespaces.unsigned_abs())), 0)])?]),
        // This excludes the whole group: `timeout` would end the helper too.
        (libc::SYS_kill, vec![rule(&[(0, Width::Dword, Is::Ne, 0)])?]),
        // This allows only the process itself, because the server may belong to the same user.
        (libc::SYS_prlimit64, vec![itself(0)?]),
        (libc::SYS_sched_setaffinity, vec![itself(0)?]),
        (libc::SYS_sched_setparam, vec![itself(0)?]),
        (libc::SYS_sched_setscheduler, vec![itself(0)?]),
        (
            libc::SYS_setpriority,
            // The first 0 is PRIO_PROCESS, whose type in `libc` differs between C libraries.
            vec![rule(&[(0, Width::Dword, Is::Eq, 0), (1, Width::Dword, Is::Eq, 0)])?],
        ),
        // These are two ends that stay connected to each other. Datagram sockets could send elsewhere.
        (libc::SYS_socketpair, vec![pair_of(SOCK_STREAM)?, pair_of(SOCK_SEQPACKET)?]),
        // This allows only an open file. By path, files that cannot be opened could be reached too.
        (libc::SYS_utimensat, vec![rule(&[(1, Width::Qword, Is::Eq, 0)])?]),
    ])
}

/// Declares lists of calls by their names in the kernel.
macro_rules! calls {
    ($( $(#[$attribute:meta])* $list:ident = { $($common:ident)* } on x86_64 { $($older:ident)* } )+) => { $(
        $(#[$attribute])*
        #[cfg(target_arch = "x86_64")]
        const $list: &[i64] = &[$(libc::$common,)* $(libc::$older,)*];
        #[cfg(not(target_arch = "x86_64"))]
        const $list: &[i64] = &[$(libc::$common,)*];
    )+ };
}

calls! {
    /// Calls that fail with "operation not permitted".
    ///
    /// - Leaving the process group, by which a command is ended.
    /// - Sockets, including those of the machine itself: Landlock does not refuse `connect` on a path.
    /// - Owners and extended attributes, which by path reach files that cannot be opened.
    /// - Other processes, namespaces, mounts.
    FORBIDDEN = {
        SYS_setsid SYS_setpgid
        SYS_socket SYS_connect SYS_bind SYS_listen SYS_accept SYS_accept4
        SYS_fchown SYS_fchownat
        SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev
        SYS_unshare SYS_setns SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot
    } on x86_64 { SYS_chown SYS_lchown }

    /// Calls that do nothing: they set the mode or the times of a file by its path, which reaches files that cannot be
    /// opened. On an open file, both work.
    IGNORED = { SYS_fchmodat } on x86_64 { SYS_fchmodat2 SYS_chmod SYS_utime SYS_utimes SYS_futimesat }

    /// Calls that are allowed with any arguments. Besides what is forbidden, these are missing on purpose: `io_uring`,
    /// which bypasses these filters; `memfd_create` and System V's shared memory, semaphores and queues, which no limit
    /// counts or which remain after the command; `inotify` and `fanotify`, which watch files that cannot be opened;
    /// file handles; keys; `bpf`, `perf_event_open`, `userfaultfd`; and everything that configures the machine.
    ALLOWED = {
        SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2
        SYS_pwritev2 SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_lseek SYS_fsync SYS_fdatasync SYS_ftruncate
        SYS_truncate SYS_fallocate SYS_fadvise64 SYS_readahead SYS_splice SYS_tee SYS_vmsplice SYS_sendfile
        SYS_copy_file_range SYS_sync_file_range
        SYS_openat SYS_openat2 SYS_mkdirat SYS_mknodat SYS_unlinkat SYS_renameat SYS_renameat2 SYS_linkat
        SYS_symlinkat SYS_readlinkat SYS_faccessat SYS_faccessat2 SYS_newfstatat SYS_statx SYS_fstat SYS_statfs
        SYS_fstatfs SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir SYS_umask SYS_fchmod SYS_flock SYS_fcntl SYS_ioctl
        SYS_pipe2 SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr
        SYS_mmap SYS_munmap SYS_mprotect SYS_mremap SYS_madvise SYS_mincore SYS_msync SYS_mlock SYS_mlock2 SYS_munlock
        SYS_mlockall SYS_munlockall SYS_brk SYS_membarrier SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect
        SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_getpid SYS_getppid SYS_gettid
        SYS_getpgid SYS_getsid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups
        SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setfsuid SYS_setfsgid
        SYS_setgroups SYS_capget SYS_capset SYS_prctl SYS_seccomp SYS_set_tid_address SYS_set_robust_list
        SYS_get_robust_list SYS_rseq SYS_futex SYS_futex_waitv SYS_getrlimit SYS_setrlimit SYS_getrusage SYS_times
        SYS_sysinfo SYS_uname SYS_getpriority SYS_getcpu SYS_sched_yield SYS_sched_getaffinity SYS_sched_getparam
        SYS_sched_getscheduler SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_rr_get_interval
        SYS_tkill SYS_tgkill SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigpending SYS_rt_sigtimedwait
        SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_rt_sigsuspend SYS_rt_sigreturn SYS_sigaltstack
        SYS_restart_syscall SYS_pidfd_open SYS_pidfd_send_signal
        SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday SYS_timer_create
        SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete SYS_timerfd_create
        SYS_timerfd_settime SYS_timerfd_gettime SYS_getitimer SYS_setitimer
        SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
        SYS_signalfd4 SYS_getrandom
        SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_shutdown SYS_getsockname SYS_getpeername SYS_getsockopt
        SYS_setsockopt
    } on x86_64 {
        SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_pipe SYS_dup2 SYS_mkdir SYS_rmdir SYS_unlink SYS_rename
        SYS_link SYS_symlink SYS_readlink SYS_mknod SYS_getdents SYS_fork SYS_vfork SYS_getpgrp SYS_pause SYS_alarm
        SYS_time SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd SYS_arch_prctl
    }
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED, FORBIDDEN, IGNORED, allowed_if, programs};
    use seccompiler::TargetArch;
    use std::collections::BTreeSet;

    #[test]
    fn no_call_is_in_two_lists() {
        let conditional = allowed_if().expect("the rules are well-formed");
        let conditional = conditional.iter().map(|(call, _)| call);
        let listed: Vec<&i64> = ALLOWED.iter().chain(FORBIDDEN).chain(IGNORED).chain(conditional).collect();
        assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), listed.len());
    }

    #[test]
    fn the_filters_fit_into_the_kernel() {
        for arch in [TargetArch::x86_64, TargetArch::aarch64] {
            for program in programs(arch).expect("the rules are well-formed") {
                // The kernel's limit of one filter (BPF_MAXINSNS).
                assert!((1..=4_096).contains(&program.len()), "{}", program.len());
            }
        }
    }
}
