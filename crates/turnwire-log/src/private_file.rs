//! Files with conversations: only their owner may read them, whatever the umask. Stores, backups
//! and exports are created with this.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a file with mode 0600. An existing file or link is an error.
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = owner_only(options.write(true).create_new(true)).open(path)?;
    // The umask may also remove rights of the owner.
    #[cfg(unix)]
    file.set_permissions(<fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600))?;
    Ok(file)
}

/// The same, after removing a file that an earlier run may have left.
pub fn create_or_replace(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => create_new(path),
    }
}

/// Sets the mode of a new file to 0600.
pub(crate) fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
