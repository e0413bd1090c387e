"""Compressed content by the reference encoders, which curl's package brings along."""

import ctypes

QUALITY, WINDOW, GENERIC = 5, 22, 0


def brotli(content):
    """Data of brotli (RFC 7932) by Google's library."""
    library = ctypes.CDLL("libbrotlienc.so.1")
    library.BrotliEncoderMaxCompressedSize.restype = ctypes.c_size_t
    room = ctypes.c_size_t(library.BrotliEncoderMaxCompressedSize(ctypes.c_size_t(len(content))))
    data = ctypes.create_string_buffer(room.value)
    size = ctypes.c_size_t(len(content))
    assert library.BrotliEncoderCompress(QUALITY, WINDOW, GENERIC, size, content, ctypes.byref(room), data)
    return data.raw[: room.value]


def zstd(content):
    """A frame of zstd (RFC 8878) by Facebook's library."""
    library = ctypes.CDLL("libzstd.so.1")
    for name in ("ZSTD_compressBound", "ZSTD_compress"):
        getattr(library, name).restype = ctypes.c_size_t
    size = ctypes.c_size_t(len(content))
    room = library.ZSTD_compressBound(size)
    data = ctypes.create_string_buffer(room)
    length = library.ZSTD_compress(data, ctypes.c_size_t(room), content, size, 3)
    assert not library.ZSTD_isError(ctypes.c_size_t(length))
    return data.raw[:length]
