//! The SQLite VFS: functions that SQLite calls. Each calls the system's VFS and reports to the disk.
#![expect(unsafe_code, reason = "SQLite's file layer is a table of C functions")]

use crate::disk::{DiskError, OpenError, ReadOutcome, SharedDisk, WriteOutcome};
use crate::mounts;
use rusqlite::ffi;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, null_mut};
use std::sync::{Arc, OnceLock};

/// An open file. SQLite allocates it, followed by the file of the system's VFS.
#[repr(C)]
struct OpenFile {
    base: ffi::sqlite3_file,
    /// Null for a file that is not on a simulated disk.
    tracked: *mut TrackedFile,
}

struct TrackedFile {
    state: Arc<SharedDisk>,
    path: PathBuf,
    /// Number of failed syncs that this handle has seen.
    seen_sync_failures: u64,
}

/// Flags of files that must survive a power cut.
const DURABLE_FILES: c_int =
    ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL;

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Version 3 would map files into memory, where writes are invisible.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Registers this VFS as SQLite's default for the rest of the process. Files that are not on a simulated disk
/// are left to the system.
pub(crate) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), &'static str>> = OnceLock::new();
    INSTALLED.get_or_init(register).map_err(io::Error::other)
}

fn register() -> Result<(), &'static str> {
    // SAFETY: the layer that is found is SQLite's own and lives as long as the process. The copy of
    // it is complete, and neither it nor its name is ever freed.
    unsafe {
        let system = ffi::sqlite3_vfs_find(ptr::null());
        if system.is_null() {
            return Err("SQLite has no VFS");
        }
        let mut table = *system;
        table.iVersion = table.iVersion.min(2);
        table.szOsFile += c_int::try_from(size_of::<OpenFile>()).unwrap_or(0);
        table.pNext = null_mut();
        table.zName = c"turnwire-faulty".as_ptr();
        table.pAppData = system.cast();
        table.xOpen = Some(open);
        table.xDelete = Some(delete);
        table.xAccess = Some(access);
        table.xFullPathname = Some(full_pathname);
        // The other functions concern time, randomness and libraries; the system's functions do not use
        // what was changed here.
        let as_default = 1;
        if ffi::sqlite3_vfs_register(Box::into_raw(Box::new(table)), as_default) != ffi::SQLITE_OK {
            return Err("SQLite refused the VFS");
        }
    }
    Ok(())
}

/// # Safety
///
/// `vfs` is the table of [`register`].
unsafe fn system_vfs(vfs: *mut ffi::sqlite3_vfs) -> *mut ffi::sqlite3_vfs {
    // SAFETY: `register` put the system's table there.
    unsafe { (*vfs).pAppData.cast() }
}

/// The system's file behind ours, and its methods.
///
/// # Safety
///
/// `file` was opened by [`open`].
unsafe fn system<'a>(
    file: *mut ffi::sqlite3_file,
) -> (*mut ffi::sqlite3_file, &'a ffi::sqlite3_io_methods) {
    // SAFETY: `szOsFile` made room for both, and `open` succeeded only with methods in place.
    unsafe {
        let inner = file.cast::<OpenFile>().add(1).cast::<ffi::sqlite3_file>();
        (inner, &*(*inner).pMethods)
    }
}

/// # Safety
///
/// `file` was opened by [`open`], and no other use of it is under way: SQLite uses a file from one
/// thread at a time.
unsafe fn tracked_file<'a>(file: *mut ffi::sqlite3_file) -> Option<&'a mut TrackedFile> {
    // SAFETY: `open` put a box there, which `close` frees.
    unsafe { (*file.cast::<OpenFile>()).tracked.as_mut() }
}

/// # Safety
///
/// `name` is a C string.
unsafe fn path<'a>(name: *const c_char) -> &'a Path {
    // SAFETY: see above.
    let name = unsafe { CStr::from_ptr(name) };
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

fn to_usize(offset: i64) -> usize {
    usize::try_from(offset).unwrap_or(0)
}

/// Calls a method of the system's file.
macro_rules! call_system {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: SQLite calls this with a file that `open` has opened and with arguments that are
        // right for the method; both are passed on as they are.
        unsafe {
            let (inner, methods) = system($file);
            match methods.$method {
                Some(method) => method(inner $(, $argument)*),
                None => ffi::SQLITE_IOERR,
            }
        }
    }};
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives the table that was registered, room for a file, and a name that lives
    // until the file is closed or none.
    unsafe {
        let system = system_vfs(vfs);
        let made = file.cast::<OpenFile>();
        (*made).base.pMethods = ptr::null();
        (*made).tracked = null_mut();
        let inner = made.add(1).cast::<ffi::sqlite3_file>();
        let open = || {
            let code = match (*system).xOpen {
                Some(open) => open(system, name, inner, flags, out_flags),
                None => ffi::SQLITE_CANTOPEN,
            };
            if code == ffi::SQLITE_OK { Ok(()) } else { Err(code) }
        };
        let lasts = flags & DURABLE_FILES != 0 && !name.is_null();
        let disk =
            lasts.then(|| path(name)).and_then(|path| Some((path, mounts::find_disk(path)?)));
        match disk {
            None => {
                if let Err(code) = open() {
                    return code;
                }
            }
            Some((path, state)) => match state.open(path, open) {
                Ok(seen) => {
                    let known =
                        TrackedFile { state, path: path.to_owned(), seen_sync_failures: seen };
                    (*made).tracked = Box::into_raw(Box::new(known));
                }
                Err(OpenError::Refused) => return ffi::SQLITE_CANTOPEN,
                Err(OpenError::System(code)) => return code,
            },
        }
        (*made).base.pMethods = &raw const METHODS;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_folder: c_int,
) -> c_int {
    // SAFETY: SQLite gives the table that was registered, and a name.
    unsafe {
        let system = system_vfs(vfs);
        let delete = || match (*system).xDelete {
            Some(delete) => delete(system, name, sync_folder),
            None => ffi::SQLITE_IOERR_DELETE,
        };
        let path = path(name);
        match mounts::find_disk(path) {
            None => delete(),
            Some(state) => {
                let done = state.delete(path, sync_folder != 0, delete);
                done.unwrap_or(ffi::SQLITE_IOERR_DELETE)
            }
        }
    }
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: passed on as it came, with the table that the function belongs to.
    unsafe {
        let system = system_vfs(vfs);
        match (*system).xAccess {
            Some(access) => access(system, name, flags, out),
            None => ffi::SQLITE_IOERR_ACCESS,
        }
    }
}

unsafe extern "C" fn full_pathname(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    len: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: passed on as it came, with the table that the function belongs to.
    unsafe {
        let system = system_vfs(vfs);
        match (*system).xFullPathname {
            Some(full) => full(system, name, len, out),
            None => ffi::SQLITE_CANTOPEN,
        }
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let code = call_system!(file, xClose);
    // SAFETY: the box is from `open`, and a closed file is not used again.
    unsafe {
        let made = file.cast::<OpenFile>();
        if !(*made).tracked.is_null() {
            Box::from_raw((*made).tracked).state.close();
            (*made).tracked = null_mut();
        }
        (*made).base.pMethods = ptr::null();
    }
    code
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite gives a file that is open.
    let reading = match unsafe { tracked_file(file) } {
        Some(known) => known.state.read(to_usize(len.into())),
        None => Ok(ReadOutcome::All),
    };
    let short = match reading {
        Err(_) => return ffi::SQLITE_IOERR_READ,
        Ok(ReadOutcome::All) => return call_system!(file, xRead, to, len, offset),
        Ok(ReadOutcome::Short(short)) => short,
    };
    let code = call_system!(file, xRead, to, len, offset);
    if code == ffi::SQLITE_OK {
        // SAFETY: `to` has room for `len` bytes, and `short` is less.
        unsafe { to.cast::<u8>().add(short).write_bytes(0, to_usize(len.into()) - short) };
        return ffi::SQLITE_IOERR_SHORT_READ;
    }
    code
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite gives a file that is open.
    let Some(known) = (unsafe { tracked_file(file) }) else {
        return call_system!(file, xWrite, from, len, offset);
    };
    // SAFETY: SQLite gives `len` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), to_usize(len.into())) };
    let write = |part: usize| {
        let part = c_int::try_from(part).unwrap_or(len);
        call_system!(file, xWrite, from, part, offset)
    };
    match known.state.write(&known.path, to_usize(offset), bytes, write) {
        (WriteOutcome::All, code) => code,
        (WriteOutcome::Part(_, DiskError::Full), _) => ffi::SQLITE_FULL,
        (WriteOutcome::Part(_, DiskError::Failed), _) => ffi::SQLITE_IOERR_WRITE,
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, len: i64) -> c_int {
    // SAFETY: SQLite gives a file that is open.
    let Some(known) = (unsafe { tracked_file(file) }) else {
        return call_system!(file, xTruncate, len);
    };
    let truncate = || call_system!(file, xTruncate, len);
    match known.state.truncate(&known.path, to_usize(len), truncate) {
        Ok(code) => code,
        Err(_) => ffi::SQLITE_IOERR_TRUNCATE,
    }
}

/// Does not call the system's sync: only the simulated power is cut.
unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: SQLite gives a file that is open.
    let Some(known) = (unsafe { tracked_file(file) }) else { return ffi::SQLITE_OK };
    match known.state.sync(&known.path, &mut known.seen_sync_failures) {
        Ok(()) => ffi::SQLITE_OK,
        Err(_) => ffi::SQLITE_IOERR_FSYNC,
    }
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    call_system!(file, xFileSize, out)
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    call_system!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    call_system!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    call_system!(file, xCheckReservedLock, out)
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    what: c_int,
    data: *mut c_void,
) -> c_int {
    call_system!(file, xFileControl, what, data)
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    call_system!(file, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    call_system!(file, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    call_system!(file, xShmMap, region, size, extend, out)
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    call_system!(file, xShmLock, offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: SQLite gives a file that is open.
    unsafe {
        let (inner, methods) = system(file);
        if let Some(barrier) = methods.xShmBarrier {
            barrier(inner);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    call_system!(file, xShmUnmap, delete)
}
