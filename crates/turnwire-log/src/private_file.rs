//! Files that hold conversations: nobody but their owner may read them, whatever the umask says.
//! Stores, backups and exports are made with this.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Makes a new file with mode 0600. One that is there already, or a link, is an error.
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = owner_only(options.write(true).create_new(true)).open(path)?;
    // The umask may take rights away from the owner, too.
    #[cfg(unix)]
    file.set_permissions(<fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600))?;
    Ok(file)
}

/// The same in the place of a file that an earlier run may have left there.
pub fn create_or_replace(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => create_new(path),
    }
}

/// Options that make a file only for its owner.
pub(crate) fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
