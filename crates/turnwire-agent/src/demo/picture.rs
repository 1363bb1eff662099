//! Generates a small PNG picture.

const WIDTH: u32 = 48;
const HEIGHT: u32 = 48;

/// A sun over the sea.
pub(super) fn png() -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    // 8 bits for each of red, green and blue; no interlacing.
    let header = [&WIDTH.to_be_bytes()[..], &HEIGHT.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    chunk(&mut png, *b"IHDR", &header);
    chunk(&mut png, *b"IDAT", &zlib(&pixels()));
    chunk(&mut png, *b"IEND", &[]);
    png
}

fn chunk(png: &mut Vec<u8>, name: [u8; 4], data: &[u8]) {
    let named = [&name[..], data].concat();
    png.extend(length(data).to_be_bytes());
    png.extend(&named);
    png.extend(crc32fast::hash(&named).to_be_bytes());
}

fn pixels() -> Vec<u8> {
    let mut bytes = Vec::new();
    for y in 0..HEIGHT {
        // Each row starts with its filter: none.
        bytes.push(0);
        for x in 0..WIDTH {
            bytes.extend(pixel(x, y));
        }
    }
    bytes
}

fn pixel(x: u32, y: u32) -> [u8; 3] {
    let shade = |from: u32, step: u32| u8::try_from(from + step * y).unwrap_or(u8::MAX);
    let (dx, dy) = (x.abs_diff(WIDTH / 2), y.abs_diff(HEIGHT / 2));
    if y > HEIGHT * 2 / 3 {
        [10, shade(20, 1), shade(60, 2)]
    } else if dx * dx + dy * dy < 100 {
        [255, 220, 110]
    } else {
        [shade(90, 4), shade(60, 2), 120]
    }
}

/// Data in zlib format without compression: one stored block has up to 65,535 bytes.
fn zlib(data: &[u8]) -> Vec<u8> {
    let mut zlib = vec![0x78, 0x01];
    let mut blocks = data.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        zlib.push(u8::from(blocks.peek().is_none()));
        zlib.extend(length.to_le_bytes());
        zlib.extend((!length).to_le_bytes());
        zlib.extend(block);
    }
    zlib.extend(adler32(data).to_be_bytes());
    zlib
}

fn adler32(data: &[u8]) -> u32 {
    let (a, b) = data.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

fn length(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap_or(u32::MAX)
}
