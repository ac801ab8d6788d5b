"""Translate a picture with a file of `labkit export`, without labkit: python run_onnx.py model.onnx in.jpg out.png"""

import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

model, source, target = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
about = session.get_modelmeta().custom_metadata_map
picture = np.asarray(ImageOps.exif_transpose(Image.open(source)).convert("RGB"))
height, width, _ = picture.shape
rows, columns = (max(int(about["min_size"]) - side, -side % int(about["size_multiple"])) for side in (height, width))
mirrored = np.pad(picture, ((0, rows), (0, columns), (0, 0)), "symmetric")  # up to a size that the network takes
(result,) = session.run(None, {"picture": mirrored.transpose(2, 0, 1)[None].astype(np.float32) / 127.5 - 1})
result = result[0].transpose(1, 2, 0)[:height, :width]
Image.fromarray(((result + 1) * 127.5).round().clip(0, 255).astype(np.uint8)).save(target)
